// Checkpoints of every family against Hugging Face's transformers: the small random models of
// tests/golden/families, logits of a prompt and of sixteen steps after it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/decoder.h"
#include "worker/model/weights.h"

namespace allot {
namespace {

using Ids = std::vector<int32_t>;

const std::string kFolder = std::string(ALLOT_SOURCE_DIR) + "/tests/golden/families/";

struct Golden {
  Ids prompt, tokens;
  std::vector<std::vector<float>> logits;  // after the prompt, then after each token
};

Golden goldenOf(const std::string& name) {
  std::ifstream file(kFolder + name + "/golden.json");
  const auto golden = nlohmann::json::parse(file);
  return {golden["prompt"].get<Ids>(), golden["tokens"].get<Ids>(),
          golden["logits"].get<std::vector<std::vector<float>>>()};
}

float largestGap(std::span<const float> is, const std::vector<float>& should) {
  if (is.size() != should.size()) return INFINITY;
  float gap = 0;
  for (size_t i = 0; i < should.size(); ++i) gap = std::max(gap, std::fabs(is[i] - should[i]));
  return gap;
}

class Families : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Decoder> load(const std::string& folder) {
    return valueOf(Decoder::load(folder, {.kv_bytes = size_t{16} << 20}));
  }
};

std::vector<uint32_t> exact(const Decoder& decoder) {
  return std::vector<uint32_t>(static_cast<size_t>(decoder.config().layers), UINT32_MAX);
}

TEST_P(Families, LogitsAreTransformers) {
  const auto decoder = load(kFolder + GetParam());
  const Golden golden = goldenOf(GetParam());
  ASSERT_EQ(golden.logits.size(), golden.tokens.size() + 1);
  auto prompt = valueOf(decoder->prefill(golden.prompt));
  float gap = largestGap(prompt.first_logits, golden.logits[0]);
  EXPECT_LE(gap, 1e-3f);
  Ids pages = prompt.pages;
  auto more = valueOf(decoder->pool().allocate(decoder->pool().pagesFor(golden.tokens.size()) + 1));
  const std::vector<uint32_t> schedule = exact(*decoder);
  pages.insert(pages.end(), more.begin(), more.end());
  for (size_t i = 0; i < golden.tokens.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const auto length = static_cast<int32_t>(golden.prompt.size() + i + 1);
    auto logits =
        valueOf(decoder->step(oneRow(pages, golden.tokens[i], length, schedule), nullptr));
    const float here = largestGap(logits, golden.logits[i + 1]);
    EXPECT_LE(here, 1e-3f);
    gap = std::max(gap, here);
  }
  printf("[  parity  ] %s: logits differ by %.1e at most\n", GetParam(), gap);
}

// What the families differ in is seen by the test: without it the logits are others.
TEST_P(Families, TheGoldenLogitsSeeWhatIsSpecial) {
  const std::string name = GetParam();
  std::ifstream file(kFolder + name + "/config.json");
  auto config = nlohmann::json::parse(file);
  if (name == "llama") config["rope_scaling"] = nullptr;
  if (name == "mistral") config["sliding_window"] = nullptr;
  if (name == "qwen2") config["architectures"] = {"LlamaForCausalLM"};
  if (name == "qwen3") config["architectures"] = {"LlamaForCausalLM"};  // without the norms
  if (name == "linear") config["rope_parameters"]["rope_type"] = "default";
  if (name == "yarn") config["rope_parameters"]["attention_factor"] = 1.0;
  if (name == "smollm3") config["no_rope_layers"] = {1, 1, 1, 1};
  const TempFolder folder;
  std::filesystem::copy(kFolder + name, folder.path(), std::filesystem::copy_options::recursive);
  folder.write("config.json", config.dump());
  const auto decoder = load(folder.path());
  const Golden golden = goldenOf(name);
  auto prompt = valueOf(decoder->prefill(golden.prompt));
  EXPECT_GT(largestGap(prompt.first_logits, golden.logits[0]), 0.05f);
}

// Beyond its window a row has the window's keys: it reads no others, and counts no others.
TEST(FamiliesWindow, AWindowIsARangeOfKeys) {
  const auto decoder = valueOf(Decoder::load(kFolder + "mistral", {.kv_bytes = size_t{16} << 20}));
  const ModelConfig& config = decoder->config();
  const Golden golden = goldenOf("mistral");
  auto prompt = valueOf(decoder->prefill(golden.prompt));
  ASSERT_GT(prompt.length, config.sliding_window);
  Ids pages = prompt.pages;
  auto more = valueOf(decoder->pool().allocate(1));
  pages.push_back(more.front());
  std::vector<kernels::RowStatistics> statistics(1);
  const std::vector<uint32_t> schedule = exact(*decoder);
  StepBatch batch = oneRow(pages, golden.tokens[0], prompt.length + 1, schedule);
  const auto logits = valueOf(decoder->step(batch, &statistics));
  const auto keys = static_cast<uint64_t>(config.sliding_window * config.heads * config.layers);
  EXPECT_EQ(statistics[0].dense_rows, keys);
  EXPECT_EQ(statistics[0].unique_rows, keys);
  EXPECT_EQ(statistics[0].key_bytes + statistics[0].value_bytes, statistics[0].dense_bytes);
  const std::vector<float> dense(logits.begin(), logits.end());
  // As many draws as the window has keys are exact attention.
  const std::vector<uint32_t> window(2, static_cast<uint32_t>(config.sliding_window));
  batch.schedules = {window};
  batch.method.method = kernels::Method::kS2antaSys;
  const auto sampled = valueOf(decoder->step(batch, nullptr));
  EXPECT_EQ(std::vector<float>(sampled.begin(), sampled.end()), dense);
}

// A model.safetensors with its output matrix said to be `head`; "": the file has none.
std::string withTensors(const std::string& file, const std::string& embeddings,
                        const std::string& head, const std::string& head_bytes) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  auto header = nlohmann::json::parse(file.substr(8, size));
  std::string data = file.substr(8 + size);
  auto table = header["model.embed_tokens.weight"];
  header.erase("model.embed_tokens.weight");
  header[embeddings] = table;
  if (!head.empty()) {
    table["data_offsets"] = {data.size(), data.size() + head_bytes.size()};
    header[head] = table;
    data += head_bytes;
  }
  const std::string text = header.dump();
  size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text + data;
}

// As transformers 5 has it: what the file holds decides about tied matrices, not config.json.
TEST(TiedHeads, FollowTheFile) {
  const std::string folder = kFolder + "linear";
  const auto config = valueOf(ModelConfig::load(folder));
  ASSERT_TRUE(config.tied_embeddings);
  const std::string file = readFile(folder + "/model.safetensors");
  const auto tied = valueOf(Weights::load(folder, config));
  // The embeddings as they are stored, in float16, and with the rows in reverse order.
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  const auto header = nlohmann::json::parse(file.substr(8, size));
  const size_t begin = header["model.embed_tokens.weight"]["data_offsets"][0];
  const size_t row = 2 * static_cast<size_t>(config.hidden_size);
  std::string same, reversed;
  for (int64_t v = 0; v < config.vocab_size; ++v) {
    const std::string one = file.substr(8 + size + begin + static_cast<size_t>(v) * row, row);
    same += one;
    reversed.insert(0, one);
  }
  const TempFolder copy;
  copy.write("config.json", readFile(folder + "/config.json"));
  const auto loaded = [&](const std::string& bytes) {
    copy.write("model.safetensors", bytes);
    return valueOf(Weights::load(copy.path(), config));
  };
  const char* embeddings = "model.embed_tokens.weight";
  const Weights equal = loaded(withTensors(file, embeddings, "lm_head.weight", same));
  EXPECT_TRUE(equal.head.rows.empty());
  EXPECT_EQ(equal.parameters, tied.parameters);
  const Weights alone = loaded(withTensors(file, "lm_head.weight", "", ""));
  EXPECT_TRUE(alone.head.rows.empty());
  EXPECT_EQ(alone.embeddings, tied.embeddings);
  EXPECT_EQ(alone.parameters, tied.parameters);

  const Weights other = loaded(withTensors(file, embeddings, "lm_head.weight", reversed));
  EXPECT_EQ(other.parameters, tied.parameters + tied.embeddings.size());
  EXPECT_TRUE(equal.unused.empty() && alone.unused.empty() && other.unused.empty());
  const Golden golden = goldenOf("linear");
  const auto decoder = valueOf(Decoder::load(copy.path(), {.kv_bytes = size_t{16} << 20}));
  std::vector<float> logits = valueOf(decoder->prefill(golden.prompt)).first_logits;
  std::reverse(logits.begin(), logits.end());
  EXPECT_LE(largestGap(logits, golden.logits[0]), 1e-3f);
  // Its memory is counted before it is read.
  EXPECT_NEAR(
      static_cast<double>(decoder->weightBytes()),
      static_cast<double>(weightBytes(decoder->config(), Device::kCpu, WeightType::kFloat32)),
      0.02 * static_cast<double>(decoder->weightBytes()));
}

// transformers leaves them aside, and warns.
TEST(UnusedTensors, AreNamed) {
  const std::string folder = kFolder + "linear";
  std::string file = readFile(folder + "/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  auto header = nlohmann::json::parse(file.substr(8, size));
  std::string data = file.substr(8 + size);
  for (const char* name : {"self_attn.q_proj.bias", "self_attn.rotary_emb.inv_freq"}) {
    header[std::string("model.layers.0.") + name] = {
        {"dtype", "F16"}, {"shape", {2}}, {"data_offsets", {data.size(), data.size() + 4}}};
    data += std::string(4, '\0');
  }
  const std::string text = header.dump();
  size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  const TempFolder copy;
  copy.write("config.json", readFile(folder + "/config.json"));
  copy.write("model.safetensors", bytes + text + data);
  const auto decoder = valueOf(Decoder::load(copy.path(), {.kv_bytes = size_t{1} << 20}));
  EXPECT_EQ(decoder->unusedTensors(),
            std::vector<std::string>{"model.layers.0.self_attn.q_proj.bias"});
}

INSTANTIATE_TEST_SUITE_P(Golden, Families,
                         testing::Values("llama", "qwen2", "qwen3", "mistral", "linear", "yarn",
                                         "smollm3"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace allot
