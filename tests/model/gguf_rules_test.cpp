// What a GGUF file has beside what is read: keys, types and tensors. Also scaled positions, layers
// without positions, and models that are split into several files. The files are the models of
// tests/golden/families, written as llama.cpp's converter writes them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/results.h"
#include "tests/temp_folder.h"
#include "worker/model/bpe.h"
#include "worker/model/decoder.h"
#include "worker/model/metaspace.h"
#include "worker/model/tokenizer.h"
#include "worker/model/weights.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kFamilies = std::string(ALLOT_SOURCE_DIR) + "/tests/golden/families/";
constexpr uint32_t kU16 = 2, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9,
                   kF64 = 12;

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string text(const std::string& value) { return raw(uint64_t{value.size()}) + value; }

// A value of metadata with its type.
template <typename T>
std::string number(uint32_t type, T value) {
  return raw(type) + raw(value);
}
std::string u32(uint32_t value) { return number(kU32, value); }
std::string f32(float value) { return number(kF32, value); }
std::string string(const std::string& value) { return raw(kString) + text(value); }
template <typename T, typename Write>
std::string list(uint32_t type, const std::vector<T>& values, const Write& write) {
  std::string bytes = raw(kArray) + raw(type) + raw(uint64_t{values.size()});
  for (const T& value : values) bytes += write(value);
  return bytes;
}

struct Tensor {
  std::vector<uint64_t> shape;  // as in Hugging Face's files: the fastest is the last
  std::string bytes;            // float16
};

struct File {
  std::map<std::string, std::string> keys;
  std::map<std::string, Tensor> tensors;

  std::string bytes() const {
    std::string out =
        "GGUF" + raw(uint32_t{3}) + raw(uint64_t{tensors.size()}) + raw(uint64_t{keys.size()});
    for (const auto& [key, value] : keys) out += text(key) + value;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      out += text(name) + raw(static_cast<uint32_t>(tensor.shape.size()));
      for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
        out += raw(*size);
      out += raw(uint32_t{1}) + raw(uint64_t{data.size()});
      data += tensor.bytes;
      data.resize((data.size() + 31) / 32 * 32);
    }
    out.resize((out.size() + 31) / 32 * 32);
    return out + data;
  }
};

std::string llamaCppName(std::string name) {
  static const std::pair<const char*, const char*> kNames[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers", "blk"},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : kNames) {
    if (const size_t at = name.find(from); at != name.npos) {
      name.replace(at, std::strlen(from), to);
    }
  }
  return name;
}

// Puts the two halves of each head's rows between each other, as llama.cpp's converter does.
std::string interleaved(const std::string& rows, size_t heads, size_t head_dim) {
  const size_t width = rows.size() / (heads * head_dim);
  std::string out;
  for (size_t row = 0; row < heads * head_dim; ++row) {
    const size_t head = row / head_dim, i = row % head_dim;
    const size_t from = head * head_dim + i % 2 * (head_dim / 2) + i / 2;
    out += rows.substr(from * width, width);
  }
  return out;
}

// A family's model, without its scaling.
File fileOf(const std::string& family, const std::string& architecture) {
  const std::string folder = kFamilies + family;
  const ModelConfig config = valueOf(ModelConfig::load(folder));
  const std::string weights = readFile(folder + "/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, weights.data(), sizeof size);
  const json header = json::parse(weights.substr(8, size));
  File file;
  const auto key = [&](const std::string& name) -> std::string& {
    return file.keys[architecture + "." + name];
  };
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry["dtype"], "F16");
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    Tensor tensor{entry["shape"], weights.substr(8 + size + begin, end - begin)};
    const bool query = name.ends_with("q_proj.weight");
    if (architecture != "qwen2" && (query || name.ends_with("k_proj.weight"))) {
      tensor.bytes = interleaved(tensor.bytes, query ? config.heads : config.kv_heads,
                                 static_cast<size_t>(config.head_dim));
    }
    file.tensors[llamaCppName(name)] = tensor;
  }
  file.keys["general.architecture"] = string(architecture);
  key("embedding_length") = u32(static_cast<uint32_t>(config.hidden_size));
  key("feed_forward_length") = u32(static_cast<uint32_t>(config.intermediate_size));
  key("block_count") = u32(static_cast<uint32_t>(config.layers));
  key("attention.head_count") = u32(static_cast<uint32_t>(config.heads));
  key("attention.head_count_kv") = u32(static_cast<uint32_t>(config.kv_heads));
  key("attention.key_length") = u32(static_cast<uint32_t>(config.head_dim));
  key("context_length") = u32(static_cast<uint32_t>(family == "yarn" ? 64 : config.max_positions));
  key("attention.layer_norm_rms_epsilon") = f32(config.rms_norm_eps);
  key("rope.freq_base") = f32(config.rope_theta);
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < config.vocab_size; ++id) tokens.push_back("t" + std::to_string(id));
  file.keys["tokenizer.ggml.model"] = string("gpt2");
  file.keys["tokenizer.ggml.tokens"] = list(kString, tokens, text);
  return file;
}

File linear() {
  File file = fileOf("linear", "llama");
  file.keys["llama.rope.scaling.factor"] = f32(4);
  return file;
}

// Returns the largest difference from the family's golden logits, after the prompt.
float gap(const std::string& path, const std::string& family) {
  const auto decoder = valueOf(Decoder::load(path, {.kv_bytes = size_t{16} << 20}));
  std::ifstream golden_file(kFamilies + family + "/golden.json");
  const json golden = json::parse(golden_file);
  const auto prompt = valueOf(decoder->prefill(golden["prompt"].get<std::vector<int32_t>>()));
  const auto should = golden["logits"][0].get<std::vector<float>>();
  EXPECT_EQ(prompt.first_logits.size(), should.size());
  float most = 0;
  for (size_t i = 0; i < should.size(); ++i) {
    most = std::max(most, std::fabs(prompt.first_logits[i] - should[i]));
  }
  return most;
}

float gap(const File& file, const std::string& family) {
  const TempFolder folder;
  return gap(folder.write("model.gguf", file.bytes()), family);
}

std::string errorOf(const File& file) {
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", file.bytes());
  const auto config = ModelConfig::load(path);
  if (!config) return config.error().message;
  const auto weights = Weights::load(path, *config);
  return weights ? "loaded" : weights.error().message;
}

TEST(GgufRules, ScaledPositionsAreTransformers) {
  EXPECT_LE(gap(linear(), "linear"), 1e-3f);  // without a type, a factor is linear
  File file = fileOf("linear", "llama");
  EXPECT_GT(gap(file, "linear"), 0.05f);
  file.keys["llama.rope.scale_linear"] = f32(4);  // its old name
  file.keys["llama.rope.scaling.type"] = string("linear");
  EXPECT_LE(gap(file, "linear"), 1e-3f);
  file.keys["llama.rope.scaling.type"] = string("none");
  EXPECT_GT(gap(file, "linear"), 0.05f);

  file = fileOf("yarn", "qwen2");
  file.keys["qwen2.rope.scaling.type"] = string("yarn");
  file.keys["qwen2.rope.scaling.factor"] = f32(4);
  file.keys["qwen2.rope.scaling.yarn_beta_fast"] = f32(4);
  EXPECT_LE(gap(file, "yarn"), 1e-3f);  // the context's length is that before the scaling
  file.keys["qwen2.rope.scaling.original_context_length"] = u32(64);
  file.keys["qwen2.context_length"] = u32(256);
  file.keys["qwen2.rope.scaling.yarn_beta_slow"] = f32(1);
  EXPECT_LE(gap(file, "yarn"), 1e-3f);
  file.keys.erase("qwen2.rope.scaling.yarn_beta_fast");  // it is 32 then
  EXPECT_GT(gap(file, "yarn"), 0.05f);
  file.keys["qwen2.rope.scaling.yarn_beta_fast"] = f32(1);
  EXPECT_THAT(errorOf(file), HasSubstr("yarn_beta_fast must be above yarn_beta_slow"));
}

// Every fourth layer of SmolLM3 has no positions; the file does not say so.
TEST(GgufRules, Smollm3IsTransformers) {
  File file = fileOf("smollm3", "smollm3");
  const TempFolder folder;
  const auto config = valueOf(ModelConfig::load(folder.write("model.gguf", file.bytes())));
  EXPECT_EQ(config.architecture, "SmolLM3ForCausalLM");
  EXPECT_EQ(config.unrotated, (std::vector<bool>{false, false, false, true}));
  EXPECT_LE(gap(file, "smollm3"), 1e-3f);
}

// A file of a tokenizer alone: the bytes, then others.
File tokenizerFile(const std::string& model, std::vector<std::string> tokens,
                   const std::vector<std::string>& more, const std::vector<float>& scores) {
  std::vector<int32_t> types(tokens.size(), model == "llama" ? 6 : 1);
  tokens.insert(tokens.end(), more.begin(), more.end());
  types.resize(tokens.size(), 1);
  std::vector<float> all(tokens.size() - scores.size(), 0);
  all.insert(all.end(), scores.begin(), scores.end());
  File file;
  file.keys["tokenizer.ggml.model"] = string(model);
  file.keys["tokenizer.ggml.tokens"] = list(kString, tokens, text);
  file.keys["tokenizer.ggml.token_type"] = list(kI32, types, raw<int32_t>);
  file.keys["tokenizer.ggml.scores"] = list(kF32, all, raw<float>);
  return file;
}

// The ids of a text's tokens behind the bytes.
std::vector<std::string> piecesOf(const File& file, const std::string& of) {
  const TempFolder folder;
  const auto tokenizer = valueOf(Tokenizer::load(folder.write("model.gguf", file.bytes())));
  std::vector<std::string> pieces;
  for (const int32_t id : tokenizer.encode(of)) pieces.push_back(tokenizer.decode({id}, false));
  return pieces;
}

// As in SentencePiece and llama.cpp, whatever the order of the vocabulary.
TEST(GgufRules, OfEqualScoresTheLeftmostPairMerges) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(byteTokenName(static_cast<uint8_t>(byte)));
  const std::vector<std::string> pieces = {
      "\u2581", "h", "e", "l", "o", "\u2581h", "el", "lo", "\u2581he", "hel", "\u2581hello", "llo"};
  File file = tokenizerFile("llama", bytes, pieces, std::vector<float>(pieces.size(), -5));
  EXPECT_EQ(piecesOf(file, "hello"), std::vector<std::string>{"hello"});
}

// SmolLM3's files name the pattern so.
TEST(GgufRules, SmaugsPatternIsThatOfLlama3) {
  const std::vector<std::string> bytes(byteCharacters().begin(), byteCharacters().end());
  File file = tokenizerFile("gpt2", bytes, {"123", "the", "\u0120the"}, {});
  const std::vector<std::string> none;
  file.keys["tokenizer.ggml.merges"] = list(kString, none, text);
  for (const char* pre : {"smaug-bpe", "llama-bpe"}) {
    file.keys["tokenizer.ggml.pre"] = string(pre);
    if (std::string(pre) == "llama-bpe") file.keys["tokenizer.ggml.bos_token_id"] = u32(0);
    EXPECT_THAT(piecesOf(file, "the the1234"), testing::ElementsAre("the", " the", "123", "4"))
        << pre;
  }
}

TEST(GgufRules, EveryKeyIsReadHarmlessOrRefused) {
  struct Case {
    const char* key;
    std::string value;
    const char* error;
  };
  const auto texts = [](const std::vector<std::string>& all) { return list(kString, all, text); };
  const Case kCases[] = {
      // Of another type. An integer stands for a number.
      {"llama.rope.freq_base", u32(10000), "loaded"},
      {"llama.rope.freq_base", number(kF64, 1e4), "loaded"},
      {"llama.block_count", number(kI32, int32_t{2}), "loaded"},
      {"llama.block_count", f32(2), "llama.block_count is a number, and must be an integer"},
      {"llama.rope.scaling.factor", string("4"),
       "llama.rope.scaling.factor is a text, and must be a number"},
      {"llama.attention.head_count_kv", list(kI32, std::vector<int32_t>{1, 1}, raw<int32_t>),
       "llama.attention.head_count_kv is a list of integers, and must be an integer"},
      {"general.architecture", texts({"llama"}), "general.architecture is a list of texts"},
      {"general.alignment", string("32"), "general.alignment is no power of two"},
      {"tokenizer.ggml.tokens", string("a"), "tokenizer.ggml.tokens is a text, and must be a list"},
      {"tokenizer.ggml.add_bos_token", number(0, uint8_t{1}),
       "tokenizer.ggml.add_bos_token is an integer, and must be true or false"},
      {"split.count", string("3"), "split.count is a text, and must be an integer"},
      {"tokenizer.chat_template", texts({"a"}), "tokenizer.chat_template is a list of texts"},
      // Harmless.
      {"llama.vocab_size", u32(160), "loaded"},
      {"llama.rope.dimension_count", u32(64), "loaded"},
      {"llama.attention.value_length", u32(64), "loaded"},
      {"llama.rope.scaling.finetuned", number(kBool, uint8_t{1}), "loaded"},
      {"llama.tensor_data_layout", string("Meta AI original pth"), "loaded"},
      {"general.name", string("a"), "loaded"},
      {"tokenizer.ggml.padding_token_id", u32(0), "loaded"},
      {"tokenizer.huggingface.json", string("{}"), "loaded"},
      {"tokenizer.chat_template.tool_use", string("a"), "loaded"},
      {"qwen2.attention.scale", f32(2), "loaded"},  // of another architecture
      // Refused.
      {"llama.rope.dimension_count", u32(32),
       "llama.rope.dimension_count: 32 is not supported; supported: all 64 channels of a head"},
      {"llama.attention.value_length", u32(32), "llama.attention.value_length: 32"},
      {"llama.rope.scaling.type", string("longrope"),
       "rope.scaling.type \"longrope\" is not supported; supported: none, linear, yarn"},
      {"llama.attention.scale", f32(2),
       "llama.attention.scale is not supported, and the model may need it; name the folder"},
      {"tokenizer.ggml.precompiled_charsmap", list(kI32, std::vector<int32_t>{1}, raw<int32_t>),
       "tokenizer.ggml.precompiled_charsmap is not supported"},
      {"llama.rope.scaling.factor", f32(0),
       "llama.rope.scaling.factor: 0 is out of range 1..1000000"},
      {"llama.rope.scaling.factor", f32(std::nanf("")), "nan is out of range 1..1000000"},
      {"llama.attention.sliding_window", u32(32),
       "llama.attention.sliding_window is not supported"},
      {"llama.rope.scaling.attn_factor", f32(2), "llama.rope.scaling.attn_factor is not supported"},
  };
  ASSERT_EQ(errorOf(linear()), "loaded");
  for (const Case& item : kCases) {
    SCOPED_TRACE(item.key);
    File file = linear();
    file.keys[item.key] = item.value;
    EXPECT_THAT(errorOf(file), HasSubstr(item.error));
  }
}

TEST(GgufRules, EveryEndOfAnAnswerIsRead) {
  File file = linear();
  file.keys["tokenizer.ggml.eos_token_id"] = u32(1);
  file.keys["tokenizer.ggml.eot_token_id"] = u32(2);
  file.keys["tokenizer.ggml.eom_token_id"] = u32(3);
  const TempFolder folder;
  EXPECT_THAT(valueOf(ModelConfig::load(folder.write("m.gguf", file.bytes()))).eos_tokens,
              testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(Tokenizer::load(folder.path() + "/m.gguf"),
              isError(HasSubstr("m.gguf lacks tokenizer.ggml.token_type, ")));
}

TEST(GgufRules, EveryTensorIsUsedOrRefused) {
  File file = linear();
  file.tensors["blk.0.attn_q.bias"] = {{128}, std::string(256, '\0')};
  EXPECT_THAT(errorOf(file), HasSubstr("tensor \"blk.0.attn_q.bias\" is not supported, and"));
  file = linear();
  file.tensors["blk.2.ffn_up.weight"] = file.tensors["blk.1.ffn_up.weight"];
  EXPECT_THAT(errorOf(file), HasSubstr("tensor \"blk.2.ffn_up.weight\" is not supported, and"));
  file = linear();
  file.tensors["rope_freqs.weight"] = {{32}, std::string(64, '\x3c')};
  EXPECT_THAT(errorOf(file), HasSubstr("rope_freqs.weight beside a rope.scaling.factor"));
  file.keys.erase("llama.rope.scaling.factor");
  EXPECT_EQ(errorOf(file), "loaded");
}

// Writes a model as llama.cpp's splitter does: part i of `count` has every count-th tensor.
void writeParts(const TempFolder& folder, const File& whole, uint16_t count) {
  for (uint16_t part = 0; part < count; ++part) {
    File file;
    if (part == 0) file.keys = whole.keys;
    file.keys["split.no"] = number(kU16, part);
    file.keys["split.count"] = number(kU16, count);
    file.keys["split.tensors.count"] = number(kI32, static_cast<int32_t>(whole.tensors.size()));
    size_t at = part;
    for (const auto& tensor : whole.tensors) {
      if (at++ % count == 0) file.tensors.insert(tensor);
    }
    folder.write("m-0000" + std::to_string(part + 1) + "-of-0000" + std::to_string(count) + ".gguf",
                 file.bytes());
  }
}

TEST(GgufRules, SplitModels) {
  const TempFolder folder;
  writeParts(folder, linear(), 3);
  const std::string first = folder.path() + "/m-00001-of-00003.gguf";
  const std::string third = folder.path() + "/m-00003-of-00003.gguf";
  EXPECT_LE(gap(first, "linear"), 1e-3f);
  const std::string digest = valueOf(Weights::digestOf(first));
  EXPECT_THAT(ModelConfig::load(third),
              isError(HasSubstr("is part 3 of 3, which has no metadata: name the part that ends "
                                "with -00001-of-00003.gguf")));
  EXPECT_THAT(ModelConfig::load(folder.write("m.gguf", readFile(first))),
              isError(HasSubstr("is part 1 of 3: name it ...-00001-of-00003.gguf")));
  // A part that changes is seen.
  std::string bytes = readFile(third);
  bytes.back() ^= 1;
  folder.write("m-00003-of-00003.gguf", bytes);
  EXPECT_NE(valueOf(Weights::digestOf(first)), digest);
  folder.write("m-00003-of-00003.gguf", readFile(folder.path() + "/m-00002-of-00003.gguf"));
  EXPECT_THAT(ModelConfig::load(first), isError(HasSubstr("is there twice")));
  File other;
  other.keys["split.no"] = number(kU16, uint16_t{2});
  other.keys["split.count"] = number(kU16, uint16_t{4});
  folder.write("m-00003-of-00003.gguf", other.bytes());
  EXPECT_THAT(ModelConfig::load(first), isError(HasSubstr("m-00003-of-00003.gguf is not part 3")));
  other.keys["split.count"] = number(kU16, uint16_t{3});
  folder.write("m-00003-of-00003.gguf", other.bytes());
  EXPECT_THAT(ModelConfig::load(first), isError(HasSubstr("split.tensors.count is another")));
  std::filesystem::remove(third);
  EXPECT_THAT(ModelConfig::load(first),
              isError(AllOf(HasSubstr("is part 1 of 3: "), HasSubstr(third))));
}

}  // namespace
}  // namespace allot
