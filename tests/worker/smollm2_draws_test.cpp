// tests/golden/smollm2_draws.json: which keys a worker draws while SmolLM2-135M-Instruct answers
// held-out questions of experiments/smollm2-layer-budget. tests/python/test_golden.py holds a model
// of transformers with the same weights to it.
//
// ALLOT_WRITE_GOLDEN=1 OPENBLAS_CORETYPE=Haswell smollm2_draws_test writes it anew. Without the
// model, which `./run smollm2` fetches, the test is skipped.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/learning/questions.h"
#include "core/spec/spec.h"
#include "tests/model/drawn_rows.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/chat_template.h"
#include "worker/model/generation.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

using nlohmann::json;

const std::string kSource = ALLOT_SOURCE_DIR;
const std::string kFile = kSource + "/tests/golden/smollm2_draws.json";
const std::string kModel = kSource + "/experiments/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr uint32_t kQuestions = 3;
constexpr int kTokens = 4;  // of which the first comes from the prompt: three steps

v1::Spec specOfExperiment() {
  const std::string path = kSource + "/experiments/smollm2-layer-budget/experiment.yaml";
  return valueOf(parseExperiment(readFile(path), path, {})).spec();
}

// As the worker's engine makes them.
std::vector<Question> heldOut(const v1::Spec& spec, const Tokenizer& tokenizer) {
  const auto chat = valueOf(ChatTemplate::choose(spec.model().chat_template(), kModel, tokenizer));
  const auto render = [&](const Draft& draft) {
    auto prompt = valueOf(chat.prompt(tokenizer, draft.system, draft.prompt, draft.answer_prefix));
    return Rendered{std::move(prompt.text), std::move(prompt.ids)};
  };
  DatasetOptions options;
  options.bos_token = tokenizer.bosToken().value_or(-1);
  options.render = render;
  return valueOf(makeDataset(spec.task(), spec.seed(), tokenizer, options)).held_out;
}

// The experiment's 105 reads, no two neighbours alike, layers without any among them.
SampleSchedule scheduleOf(int64_t layers) {
  SampleSchedule schedule;
  for (int64_t layer = 0; layer < layers; ++layer) {
    schedule.push_back(std::vector<uint32_t>{7, 3, 0, 5, 2, 4}[layer % 6]);
  }
  return schedule;
}

// Of each head's output, to six places: keys that are drawn more than once show in it.
json firstChannels(const std::vector<float>& out, int head_dim) {
  json all = json::array();
  for (size_t i = 0; i < out.size(); i += static_cast<size_t>(head_dim)) {
    all.push_back(std::round(double{out[i]} * 1e6) / 1e6);
  }
  return all;
}

// An answer of the worker's generation, its sets of keys step by step and layer by layer, and the
// queries of its first step in the first layer and the last.
json answerOf(Decoder* decoder, const Tokenizer& tokenizer, const Question& question,
              uint32_t number, const std::string& method, uint64_t seed) {
  auto prompt = valueOf(decoder->prefill(question.prompt_ids));
  const auto layers = static_cast<uint32_t>(decoder->config().layers);
  const uint32_t sequence = evaluationSequence(number);
  json steps = json::array(), queries = json::array();
  GenerationOptions options{.method = methodOf(method),
                            .seed = seed,
                            .max_new_tokens = kTokens,
                            .is_complete = neverComplete};
  options.probe = [&](const kernels::PagedKv& kv, const kernels::DecodeInputs& in, const float*) {
    std::vector<float> out;
    const json rows = rowsOf(options.method, kv, in, &out).keys();
    steps.push_back({{"layer", in.layer},
                     {"step", in.steps[0]},
                     {"rows", rows},
                     {"first_channels", firstChannels(out, kv.head_dim)}});
    if (number == 0 && in.steps[0] == 1 && (in.layer == 0 || in.layer + 1 == layers)) {
      const std::vector<float> all(in.queries, in.queries + in.heads * kv.head_dim);
      queries.push_back({{"layer", in.layer}, {"queries", all}});
    }
  };
  const SampleSchedule schedule = scheduleOf(layers);
  const auto out = valueOf(generate(decoder, tokenizer, {{&prompt, schedule, sequence}}, options));
  decoder->release(&prompt);
  return {{"method", method},     {"question", number},
          {"schedule", schedule}, {"prompt_ids", question.prompt_ids},
          {"steps", steps},       {"tokens", out[0].tokens},
          {"queries", queries}};
}

json made() {
  const v1::Spec spec = specOfExperiment();
  const auto tokenizer = Tokenizer::load(kModel);
  auto decoder = Decoder::load(kModel, {.kv_bytes = size_t{128} << 20, .shadow_bits = {4}});
  EXPECT_TRUE(tokenizer && decoder);
  const std::vector<Question> questions = heldOut(spec, *tokenizer);
  json answers = json::array();
  for (uint32_t number = 0; number < kQuestions; ++number) {
    for (const std::string method : {"s2anta-sys", "s2anta-q4"}) {
      answers.push_back(answerOf(decoder->get(), *tokenizer, questions[number], number, method,
                                 runStreams(spec).key));
    }
  }
  return {{"about",
           "made by ALLOT_WRITE_GOLDEN=1 smollm2_draws_test: what a worker draws in a float32 "
           "cache, weights of SmolLM2-135M-Instruct.Q4_1.gguf"},
          {"seed", runStreams(spec).key},
          {"answers", answers}};
}

TEST(SmolLm2Draws, AreWhatTheFileSays) {
  if (!std::filesystem::exists(kModel)) {
    GTEST_SKIP() << "needs SmolLM2: ./run smollm2 fetches it";
  }
  // ctest sets it (CMakeLists.txt says why); OpenBLAS reads it when it is loaded.
  const char* const kernels = std::getenv("OPENBLAS_CORETYPE");
  ASSERT_TRUE(kernels && std::strcmp(kernels, "Haswell") == 0) << "set OPENBLAS_CORETYPE=Haswell";
  const json now = made();
  if (std::getenv("ALLOT_WRITE_GOLDEN")) {
    std::ofstream file(kFile);
    file << "{\n\"about\": " << now["about"] << ",\n\"seed\": " << now["seed"]
         << ",\n\"answers\": [\n";
    for (size_t i = 0; i < now["answers"].size(); ++i) {
      file << now["answers"][i].dump() << (i + 1 < now["answers"].size() ? ",\n" : "\n");
    }
    file << "]\n}\n";
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << "compares nothing";
    GTEST_SKIP() << "needs a run without ALLOT_WRITE_GOLDEN to compare; wrote " << kFile;
  }
  std::ifstream file(kFile);
  const json then = json::parse(file, nullptr, false);
  ASSERT_FALSE(then.is_discarded()) << kFile;
  EXPECT_EQ(then["seed"], now["seed"]);
  ASSERT_EQ(then["answers"].size(), now["answers"].size());
  for (size_t i = 0; i < now["answers"].size(); ++i) {
    for (const char* name : {"method", "question", "schedule", "prompt_ids", "steps", "tokens"}) {
      EXPECT_EQ(then["answers"][i][name], now["answers"][i][name]) << i << " " << name;
    }
  }
}

}  // namespace
}  // namespace allot
