// tests/golden/draws.json: what attention draws and gives, as the worker's decoder and kernels/
// have it. tests/python holds PyTorch's operators and transformers to the same file.
//
// ALLOT_WRITE_GOLDEN=1 golden_draws_test writes it anew.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "core/digest.h"
#include "core/learning/questions.h"
#include "tests/kernels/key_pool.h"
#include "tests/kernels/recall_states.h"
#include "tests/model/drawn_rows.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/decoder.h"
#include "worker/model/generation.h"

namespace allot {
namespace {

using nlohmann::json;

const std::string kSource = ALLOT_SOURCE_DIR;
const std::string kFile = kSource + "/tests/golden/draws.json";
constexpr uint64_t kSeed = 0xfedcba9876543210;
constexpr int kPage = 16;

template <typename T>
std::string digestOf(const std::vector<T>& values) {
  return sha256Hex({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// ---- steps on the recorded states of tests/golden/recall_states.bin ----

// A float32 cache with what every method reads, filled with a block's keys and values.
struct FilledCache {
  explicit FilledCache(const kernels::RecallBlock& block) {
    const int keys = static_cast<int>(block.key_count);
    const int pages = (keys + kPage - 1) / kPage;
    const auto heads = static_cast<int>(block.kv_heads), width = static_cast<int>(block.head_dim);
    const auto positions = static_cast<size_t>(pages * kPage * heads);
    pool.resize(2 * positions * width);
    kv.keys = pool.data();
    kv.values = pool.data() + positions * width;
    kv.pages = pages, kv.kv_heads = heads, kv.page_size = kPage, kv.head_dim = width;
    codes.resize(kernels::KeyShadow{.bits = 4}.tileBytes(width) * positions / 16);
    scales.resize(positions);
    mean_keys.resize(static_cast<size_t>(pages * heads * width));
    bounds.resize(positions / 16 * 2 * width);
    kv.shadows[0] = {.bits = 4, .codes = codes.data(), .scales = scales.data()};
    kv.mean_keys = mean_keys.data();
    kv.bounds = bounds.data();
    table.resize(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    EXPECT_EQ(kernels::appendRow(kv, table.data(), pages, 0, keys, block.keys.data(),
                                 block.values.data()),
              std::nullopt);
  }

  std::vector<float> pool, scales, mean_keys, bounds;
  std::vector<uint8_t> codes;
  std::vector<int32_t> table;
  kernels::PagedKv kv;
};

json kernelSteps() {
  const auto blocks = kernels::readRecallStates(kSource + "/tests/golden/recall_states.bin");
  EXPECT_EQ(blocks.size(), 5u);
  json steps = json::array();
  for (size_t b = 0; b < blocks.size(); ++b) {
    const kernels::RecallBlock& block = blocks[b];
    FilledCache cache(block);
    for (const std::string text :
         {"dense", "santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash tileSize=64",
          "s2anta-q4", "top-k", "top-k scores=q4", "quest", "vattention epsilon=0.2",
          "bernoulli values=s2anta-sys"}) {
      // Other sequences, steps and budgets in each: those of evaluations, too.
      const uint32_t step = static_cast<uint32_t>(b) % block.steps;
      const uint32_t budget = 4 + 3 * static_cast<uint32_t>(b);
      const uint32_t sequence = (b % 2 ? kEvaluationBit : 0) | (17 + static_cast<uint32_t>(b));
      const int32_t length = block.length(step);
      const uint32_t name = step + 1;
      kernels::DecodeInputs in;
      in.queries = block.queries.data() + step * block.heads * block.head_dim;
      in.page_table = cache.table.data();
      in.max_pages = static_cast<int>(cache.table.size());
      in.lengths = &length, in.budgets = &budget, in.sequences = &sequence, in.steps = &name;
      in.rows = 1, in.heads = static_cast<int>(block.heads);
      in.layer = block.layer, in.seed = kSeed;
      in.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block.head_dim)));
      std::vector<float> out;
      const DrawnRows rows = rowsOf(methodOf(text), cache.kv, in, &out);
      json entry = {
          {"block", b},        {"recorded_step", step},       {"method", text},
          {"budget", budget},  {"sequence", sequence},        {"step", name},
          {"layer", in.layer}, {"out_sha256", digestOf(out)}, {"rows_sha256", digestOf(rows.bits)}};
      if (text == "s2anta-sys" || text == "s2anta-q4") entry["rows"] = rows.keys();
      steps.push_back(std::move(entry));
    }
  }
  return steps;
}

// ---- answers of the decoder, as a worker writes them ----

json answers() {
  const std::string folder = kSource + "/experiments/models/recall-7m";
  auto decoder = Decoder::load(folder, {.kv_bytes = size_t{64} << 20, .shadow_bits = {4}});
  auto tokenizer = Tokenizer::load(folder + "/tokenizer.json");
  EXPECT_TRUE(decoder && tokenizer);
  const auto ids = goldenPrompt();
  auto prompt = valueOf((*decoder)->prefill(ids));
  const SampleSchedule schedule = {3, 2, 0, 1, 3, 0, 5, 2};
  json all = json::array();
  for (const std::string text : {"dense", "s2anta-sys", "s2anta-q4"}) {
    const uint32_t sequence = kEvaluationBit | 41;
    json steps = json::array();
    GenerationOptions options{
        .method = methodOf(text), .seed = kSeed, .max_new_tokens = 8, .is_complete = neverComplete};
    options.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float*) {
      if (text == "dense") return;
      std::vector<float> out;
      steps.push_back({{"layer", in.layer},
                       {"step", in.steps[0]},
                       {"rows", rowsOf(options.method, kv, in, &out).keys()}});
    };
    const auto out =
        valueOf(generate(decoder->get(), *tokenizer, {{&prompt, schedule, sequence}}, options));
    all.push_back({{"method", text},
                   {"schedule", schedule},
                   {"sequence", sequence},
                   {"prompt", 0},
                   {"tokens", out[0].tokens},
                   {"steps", steps}});
  }
  (*decoder)->release(&prompt);
  return all;
}

// ---- schedules by layers, KV heads and heads ----

json schedules() {
  ModelConfig config;
  config.layers = 3, config.heads = 6, config.kv_heads = 2;
  json all = json::array();
  for (const int64_t each : {int64_t{1}, config.kv_heads, config.heads}) {
    SampleSchedule schedule(static_cast<size_t>(config.layers * each));
    for (size_t i = 0; i < schedule.size(); ++i) schedule[i] = static_cast<uint32_t>(i * i % 7);
    const ScheduleView view = schedule;
    json layers = json::array();
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      std::vector<uint32_t> budgets;
      layerBudgets({&view, 1}, config, layer, &budgets);
      layers.push_back(budgets);
    }
    all.push_back({{"layers", config.layers},
                   {"heads", config.heads},
                   {"kv_heads", config.kv_heads},
                   {"schedule", schedule},
                   {"budgets", layers}});
  }
  return all;
}

// ---- names of rows ----

json sequences() {
  json all = json::array();
  for (const uint32_t i : {0u, 1u, 41u}) {
    all.push_back({{"ticket", 7 + i},
                   {"count", 48},
                   {"index", i},
                   {"rollout", rolloutSequence(7 + i, 48, i)},
                   {"question", i},
                   {"repeat", i % 3},
                   {"evaluation", evaluationSequence(i, i % 3)}});
  }
  return all;
}

json made() {
  return {{"about",
           "made by ALLOT_WRITE_GOLDEN=1 golden_draws_test; kernel_steps are over the float32 "
           "cache of tests/golden/recall_states.bin, answers are recall-7m's in float32"},
          {"seed", kSeed},
          {"kernel_steps", kernelSteps()},
          {"answers", answers()},
          {"schedules", schedules()},
          {"sequences", sequences()}};
}

TEST(GoldenDraws, AreWhatTheFileSays) {
  const json now = made();
  if (std::getenv("ALLOT_WRITE_GOLDEN")) {
    // An entry a line, so that a change shows.
    std::ofstream file(kFile);
    file << "{\n";
    for (const char* name : {"about", "seed"}) {
      file << json(name).dump() << ": " << now[name].dump() << ",\n";
    }
    for (const char* name : {"kernel_steps", "answers", "schedules", "sequences"}) {
      file << json(name).dump() << ": [\n";
      for (size_t i = 0; i < now[name].size(); ++i) {
        file << now[name][i].dump() << (i + 1 < now[name].size() ? ",\n" : "\n");
      }
      file << (std::strcmp(name, "sequences") == 0 ? "]\n" : "],\n");
    }
    file << "}\n";
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << "compares nothing";
    GTEST_SKIP() << "needs a run without ALLOT_WRITE_GOLDEN to compare; wrote " << kFile;
  }
  std::ifstream file(kFile);
  const json then = json::parse(file, nullptr, false);
  ASSERT_FALSE(then.is_discarded()) << kFile;
  EXPECT_EQ(then["seed"], now["seed"]);
  for (const char* name : {"kernel_steps", "answers", "schedules", "sequences"}) {
    ASSERT_EQ(then[name].size(), now[name].size()) << name;
    for (size_t i = 0; i < now[name].size(); ++i) {
      EXPECT_EQ(then[name][i].dump(), now[name][i].dump()) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace allot
