// GGUF files: blocks against gguf-py, a model's logits against transformers, its tokenizer, and
// files that are damaged (tests/golden/make_gguf_cases.py).
#include "worker/model/gguf.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/chat_template.h"
#include "worker/model/decoder.h"
#include "worker/model/tokenizer.h"

namespace allot {
namespace {

using namespace std::string_literals;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = std::string(ALLOT_SOURCE_DIR) + "/tests/golden/gguf/";

json golden(const std::string& name) {
  std::ifstream file(kFolder + name);
  return json::parse(file);
}

TEST(Gguf, BlocksAreGgufPys) {
  const json cases = golden("blocks.json");
  ASSERT_EQ(cases.size(), 13u);
  for (const json& item : cases) {
    SCOPED_TRACE(item["name"].get<std::string>());
    const auto hex = item["bytes"].get<std::string>();
    std::vector<std::byte> bytes(hex.size() / 2);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    const auto values = item["values"].get<std::vector<float>>();
    std::vector<float> out(values.size());
    toFloat({static_cast<GgmlType>(item["type"].get<uint32_t>()),
             {static_cast<int64_t>(values.size())},
             bytes.data()},
            out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], values[i], 1e-6 * (1 + std::fabs(values[i]))) << i;
    }
  }
}

struct GoldenModel {
  const char* file;
  const char* logits;
  const char* architecture;
  bool tied;
};

class GgufModel : public testing::TestWithParam<GoldenModel> {};

TEST_P(GgufModel, LogitsAreTransformers) {
  auto decoder = valueOf(Decoder::load(kFolder + GetParam().file, {.kv_bytes = size_t{16} << 20}));
  const ModelConfig& config = decoder->config();
  EXPECT_EQ(config.architecture, GetParam().architecture);
  EXPECT_THAT(config.eos_tokens, ElementsAre(1));
  EXPECT_EQ(config.tied_embeddings, GetParam().tied);
  const json expected = golden(GetParam().logits);
  // Fed token by token: every position of the rest is a step's.
  const auto tokens = expected["tokens"].get<std::vector<int32_t>>();
  auto ids = expected["prompt"].get<std::vector<int32_t>>();
  float gap = 0;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    auto prompt = valueOf(decoder->prefill(ids));
    const auto should = expected["logits"][i].get<std::vector<float>>();
    ASSERT_EQ(prompt.first_logits.size(), should.size());
    for (size_t t = 0; t < should.size(); ++t) {
      gap = std::max(gap, std::fabs(prompt.first_logits[t] - should[t]));
    }
    decoder->release(&prompt);
    if (i < tokens.size()) ids.push_back(tokens[i]);
  }
  EXPECT_LE(gap, 1e-3f);
  printf("[  parity  ] %s: logits differ by %.1e at most\n", GetParam().file, gap);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, GgufModel,
    testing::Values(GoldenModel{"model.gguf", "golden.json", "LlamaForCausalLM", false},
                    GoldenModel{"qwen3.gguf", "qwen3.json", "Qwen3ForCausalLM", true}),
    [](const auto& param) { return std::string(param.param.architecture); });

TEST(Gguf, ATokenizerIsInTheFile) {
  const auto tokenizer = valueOf(Tokenizer::load(tokenizerPath(kFolder + "model.gguf")));
  const auto ids = tokenizer.encode("the the<|im_start|>12");
  EXPECT_EQ(ids, (std::vector<int32_t>{*tokenizer.idOf("the"), *tokenizer.idOf("\u0120the"), 1,
                                       *tokenizer.idOf("1"), *tokenizer.idOf("2")}));
  EXPECT_EQ(tokenizer.decode(ids), "the the12");
  EXPECT_EQ(tokenizer.bosToken(), std::nullopt);  // the file asks for none
}

// Where a file does not say whether a token stands in front, llama.cpp's defaults hold.
TEST(Gguf, BosIsTheTokenizersRule) {
  struct Case {
    const char* seed;  // of the seeds of fuzz-model-files, which begin with a letter
    const char* bos;
    const char* chat;
  };
  const TempFolder folder;
  for (const Case& item : {Case{"accepted-pieces", "1", "none"},
                           {"accepted-gpt2", "none", "none"},
                           {"accepted-llama-bpe", "0", "published"}}) {
    SCOPED_TRACE(item.seed);
    const std::string seed =
        readFile(ALLOT_BIN_DIR "/../seeds/fuzz-model-files/" + std::string(item.seed));
    ASSERT_FALSE(seed.empty());
    const std::string path = folder.write("model.gguf", seed.substr(1));
    const auto tokenizer = valueOf(Tokenizer::load(path));
    const auto bos = tokenizer.bosToken();
    EXPECT_EQ(bos ? std::to_string(*bos) : "none", item.bos);
    EXPECT_EQ(valueOf(ChatTemplate::choose("auto", path, tokenizer)).name(), item.chat);
  }
}

std::string errorOf(const std::string& bytes) {
  const TempFolder folder;
  const auto gguf = Gguf::open(folder.write("model.gguf", bytes));
  if (!gguf) return gguf.error().message;
  const auto config = ModelConfig::load(folder.path() + "/model.gguf");
  return config ? "loaded" : config.error().message;
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, to.size(), to);
}

std::string loadError(const std::string& bytes) {
  const TempFolder folder;
  const auto decoder =
      Decoder::load(folder.write("model.gguf", bytes), {.kv_bytes = size_t{1} << 20});
  return decoder ? "loaded" : decoder.error().message;
}

TEST(Gguf, NamesWhatIsWrong) {
  const std::string good = readFile(kFolder + "model.gguf");
  ASSERT_EQ(errorOf(good), "loaded");
  EXPECT_THAT(errorOf("GGUX" + good.substr(4)), HasSubstr("is no GGUF file"));
  EXPECT_THAT(errorOf(good.substr(0, 4) + '\x09' + good.substr(5)),
              HasSubstr("GGUF version 9 is not supported; supported: 2, 3"));
  EXPECT_THAT(errorOf(good.substr(0, 4) + "\0\0\0\3"s + good.substr(8)),
              HasSubstr("its numbers are big-endian, which is not supported"));
  EXPECT_THAT(errorOf(good + good),
              HasSubstr(" has another GGUF file behind its last tensor; make two of it"));
  EXPECT_THAT(errorOf("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("is a Git LFS pointer"));
  EXPECT_THAT(errorOf(good.substr(0, 3)), HasSubstr("is cut short at byte 3"));
  EXPECT_THAT(errorOf(good.substr(0, good.size() / 2)), HasSubstr("ends beyond the file"));
  EXPECT_THAT(errorOf(replaced(good, "general.architecture", "general.architectura")),
              HasSubstr("lacks general.architecture"));
  EXPECT_THAT(errorOf(replaced(good, "llama.block_count", "llama.block_kount")),
              HasSubstr("lacks llama.block_count"));
  EXPECT_THAT(errorOf(replaced(good, "blk.0.attn_norm.weight", "blk.1.attn_norm.weight")),
              HasSubstr("\"blk.1.attn_norm.weight\" is there twice"));
  EXPECT_THAT(loadError(replaced(good, "blk.0.attn_q.weight", "blk.0.attn_Q.weight")),
              HasSubstr("tensor \"blk.0.attn_q.weight\" is not there"));
  const std::string qwen3 = readFile(kFolder + "qwen3.gguf");
  EXPECT_THAT(loadError(replaced(qwen3, "blk.1.attn_k_norm.weight", "blk.1.attn_k_Norm.weight")),
              HasSubstr("tensor \"blk.1.attn_k_norm.weight\" is not there"));
  EXPECT_THAT(errorOf(replaced(good, "general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama"s,
                               "general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0gemma"s)),
              HasSubstr("general.architecture \"gemma\" is not supported; supported: llama, qwen2, "
                        "qwen3"));
  const TempFolder folder;
  folder.write("pre.gguf", replaced(good, "smollm", "smollX"));
  EXPECT_THAT(
      Tokenizer::load(folder.path() + "/pre.gguf"),
      isError(HasSubstr("tokenizer.ggml.pre \"smollX\" is not supported; supported: llama-bpe")));
}

// The file of tests/fuzz with pieces, its last token made as long.
std::string withPiece(size_t bytes) {
  std::string file = readFile(ALLOT_BIN_DIR "/../seeds/fuzz-model-files/accepted-pieces").substr(1);
  const std::string old = std::string("\5\0\0\0\0\0\0\0", 8) + "\u2581th";
  const size_t at = file.find(old);
  EXPECT_NE(at, std::string::npos);
  // By a multiple of 32, so that the tensors keep their places.
  const uint64_t length = 5 + bytes / 32 * 32;
  std::string grown(sizeof length, '\0');
  std::memcpy(grown.data(), &length, sizeof length);
  return file.replace(at, old.size(), grown + std::string(length, 't'));
}

TEST(Gguf, LongPiecesTakeNoTime) {
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", withPiece(10'000'000));
  ASSERT_TRUE(Gguf::open(path));
  EXPECT_THAT(Tokenizer::load(path),
              isError(ErrorCode::kUsage,
                      AllOf(HasSubstr(path + ": tokenizer.ggml.tokens[262]: \"tttt"),
                            HasSubstr("has 10000005 bytes; at most 256 are supported"))));
  EXPECT_TRUE(Tokenizer::load(folder.write("model.gguf", withPiece(224))));
}

TEST(Gguf, WidthsThatTheKernelsDoNotTake) {
  std::string file = readFile(ALLOT_BIN_DIR "/../seeds/fuzz-model-files/accepted-pieces").substr(1);
  const std::string key = "llama.embedding_length";
  file[file.find(key) + key.size() + 4] = 72;  // behind the type
  EXPECT_THAT(errorOf(file), HasSubstr("llama.embedding_length: 72 is not supported; supported: a "
                                       "multiple of 16"));
}

// Damaged files are refused or read; a crash or a sanitizer's finding fails the test.
TEST(Gguf, DamagedFiles) {
  const std::string good = readFile(kFolder + "model.gguf");
  const size_t header = good.find("rope_freqs.weight");
  ASSERT_LT(header, good.size());
  std::mt19937 random(11);
  const TempFolder folder;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 4; ++change) {
      bytes[random() % header] = static_cast<char>(random());
    }
    if (i % 4 == 0) bytes.resize(random() % bytes.size());
    const std::string path = folder.write("model.gguf", bytes);
    (void)Decoder::load(path, {.kv_bytes = 1 << 20});
    (void)Tokenizer::load(path);
  }
}

}  // namespace
}  // namespace allot
