#include "worker/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/json_text.h"
#include "core/spec/model_catalogue.h"

namespace allot {
namespace {

using nlohmann::json;

// ---- Configuration.

// SmolLM3: every fourth layer has no positions. The file does not say so.
constexpr int64_t kNoRopeInterval = 4;

std::string supportedText() {
  std::string text;
  for (const ArchitectureInfo& info : architectureCatalogue()) {
    if (!info.gguf.empty()) text.append(text.empty() ? "" : ", ").append(info.gguf);
  }
  return text;
}

constexpr const char* kWayOut =
    " is not supported, and the model may need it; name the folder of the model in Hugging Face's "
    "format, or another model";

// The types of values, in the order of Gguf::Value.
enum class KeyType : size_t { kInteger, kReal, kBoolean, kText, kIntegers, kReals, kTexts };
constexpr const char* kKeyTypes[] = {"an integer",     "a number",           "true or false",
                                     "a text",         "a list of integers", "a list of numbers",
                                     "a list of texts"};

struct KnownKey {
  std::string_view name;  // behind the prefix; with a point at its end for all that begin so
  KeyType type;
};

// What is read or checked of an architecture. The last three are known to change nothing.
constexpr KnownKey kArchitectureKeys[] = {
    {"attention.head_count", KeyType::kInteger},
    {"attention.head_count_kv", KeyType::kInteger},
    {"attention.key_length", KeyType::kInteger},
    {"attention.layer_norm_rms_epsilon", KeyType::kReal},
    {"attention.value_length", KeyType::kInteger},
    {"block_count", KeyType::kInteger},
    {"context_length", KeyType::kInteger},
    {"embedding_length", KeyType::kInteger},
    {"feed_forward_length", KeyType::kInteger},
    {"rope.dimension_count", KeyType::kInteger},
    {"rope.freq_base", KeyType::kReal},
    {"rope.scale_linear", KeyType::kReal},
    {"rope.scaling.factor", KeyType::kReal},
    {"rope.scaling.original_context_length", KeyType::kInteger},
    {"rope.scaling.type", KeyType::kText},
    {"rope.scaling.yarn_beta_fast", KeyType::kReal},
    {"rope.scaling.yarn_beta_slow", KeyType::kReal},
    {"rope.scaling.finetuned", KeyType::kBoolean},
    {"tensor_data_layout", KeyType::kText},
    {"vocab_size", KeyType::kInteger}};
constexpr KnownKey kTokenizerKeys[] = {{"chat_template", KeyType::kText},
                                       {"ggml.add_bos_token", KeyType::kBoolean},
                                       {"ggml.add_space_prefix", KeyType::kBoolean},
                                       {"ggml.bos_token_id", KeyType::kInteger},
                                       {"ggml.eom_token_id", KeyType::kInteger},
                                       {"ggml.eos_token_id", KeyType::kInteger},
                                       {"ggml.eot_token_id", KeyType::kInteger},
                                       {"ggml.merges", KeyType::kTexts},
                                       {"ggml.model", KeyType::kText},
                                       {"ggml.pre", KeyType::kText},
                                       {"ggml.scores", KeyType::kReals},
                                       {"ggml.token_type", KeyType::kIntegers},
                                       {"ggml.tokens", KeyType::kTexts},
                                       // Known to change nothing.
                                       {"chat_template.", KeyType::kText},
                                       {"chat_templates", KeyType::kTexts},
                                       {"ggml.add_eos_token", KeyType::kBoolean},
                                       {"ggml.add_sep_token", KeyType::kBoolean},
                                       {"ggml.cls_token_id", KeyType::kInteger},
                                       {"ggml.fim_mid_token_id", KeyType::kInteger},
                                       {"ggml.fim_pad_token_id", KeyType::kInteger},
                                       {"ggml.fim_pre_token_id", KeyType::kInteger},
                                       {"ggml.fim_rep_token_id", KeyType::kInteger},
                                       {"ggml.fim_sep_token_id", KeyType::kInteger},
                                       {"ggml.fim_suf_token_id", KeyType::kInteger},
                                       {"ggml.mask_token_id", KeyType::kInteger},
                                       {"ggml.middle_token_id", KeyType::kInteger},
                                       {"ggml.padding_token_id", KeyType::kInteger},
                                       {"ggml.prefix_token_id", KeyType::kInteger},
                                       {"ggml.separator_token_id", KeyType::kInteger},
                                       {"ggml.seperator_token_id", KeyType::kInteger},
                                       {"ggml.suffix_token_id", KeyType::kInteger},
                                       {"ggml.token_type_count", KeyType::kInteger},
                                       {"ggml.unknown_token_id", KeyType::kInteger},
                                       {"huggingface.json", KeyType::kText},
                                       {"rwkv.world", KeyType::kText}};
constexpr KnownKey kGeneralKeys[] = {{"architecture", KeyType::kText}};
constexpr KnownKey kSplitKeys[] = {
    {"count", KeyType::kInteger}, {"no", KeyType::kInteger}, {"tensors.count", KeyType::kInteger}};

// Checks the types of the keys that begin with a prefix. An integer may stand for a number. Other
// keys are refused if they `matter`.
Status checkKeys(const Gguf& gguf, const std::string& prefix, std::span<const KnownKey> known,
                 bool matter = false) {
  const auto& all = gguf.metadata();
  for (auto it = all.lower_bound(prefix); it != all.end() && it->first.starts_with(prefix); ++it) {
    const std::string& name = it->first;
    const auto& value = it->second;
    const auto key = std::find_if(known.begin(), known.end(), [&](const KnownKey& one) {
      const std::string_view rest = std::string_view(name).substr(prefix.size());
      return one.name == rest || (one.name.ends_with('.') && rest.starts_with(one.name));
    });
    const std::string where = gguf.path() + ": " + name;
    if (key == known.end()) {
      if (!matter) continue;
      return badInput(where + kWayOut);
    }
    const auto type = static_cast<KeyType>(value.index());
    if (type == key->type || (type == KeyType::kInteger && key->type == KeyType::kReal)) continue;
    return badInput(where + " is " + kKeyTypes[value.index()] + ", and must be " +
                    kKeyTypes[static_cast<size_t>(key->type)]);
  }
  return {};
}

// Reads keys that begin with a prefix. A key without a `fallback` is required.
class Keys {
 public:
  Keys(const Gguf& gguf, std::string prefix) : gguf_(gguf), prefix_(std::move(prefix)) {}

  Status integer(const std::string& key, int64_t lowest, int64_t highest, int64_t* out,
                 const int64_t* fallback = nullptr) const {
    const std::string name = prefix_ + key;
    const auto* value = gguf_.find<int64_t>(name);
    if (!value && !fallback) return badInput(gguf_.path() + " lacks " + name);
    *out = value ? *value : *fallback;
    if (*out >= lowest && *out <= highest) return {};
    return badInput(gguf_.path() + ": " + name + ": " + std::to_string(*out) + " is out of range " +
                    std::to_string(lowest) + ".." + std::to_string(highest));
  }
  Status real(const std::string& key, double lowest, double highest, float* out,
              const double* fallback = nullptr) const {
    const std::string name = prefix_ + key;
    const auto* value = gguf_.find<double>(name);
    const auto* whole = gguf_.find<int64_t>(name);
    if (!value && !whole && !fallback) return badInput(gguf_.path() + " lacks " + name);
    const double number = value ? *value : whole ? static_cast<double>(*whole) : *fallback;
    *out = static_cast<float>(number);
    if (number >= lowest && number <= highest) return {};
    char text[100];
    std::snprintf(text, sizeof text, "%g is out of range %.10g..%.10g", number, lowest, highest);
    return badInput(gguf_.path() + ": " + name + ": " + text);
  }
  const std::string* text(const std::string& key) const {
    return gguf_.find<std::string>(prefix_ + key);
  }

 private:
  const Gguf& gguf_;
  const std::string prefix_;
};

// Reads the scaling of rotary positions, with llama.cpp's defaults: a factor without a type is
// linear.
Status readScaling(const Gguf& gguf, const Keys& keys, ModelConfig* config) {
  using Kind = RopeScaling::Kind;
  RopeScaling& scaling = config->rope_scaling;
  const std::string* type = keys.text("rope.scaling.type");
  if (type && *type == "none") return {};
  if (type && *type != "linear" && *type != "yarn") {
    return badInput(gguf.path() + ": rope.scaling.type " + inQuotes(*type) +
                    " is not supported; supported: none, linear, yarn, or factors in "
                    "rope_freqs.weight");
  }
  double fallback = 1;
  ALLOT_TRY(keys.real("rope.scale_linear", 1, 1e6, &scaling.factor, &fallback));  // the old name
  fallback = scaling.factor;
  ALLOT_TRY(keys.real("rope.scaling.factor", 1, 1e6, &scaling.factor, &fallback));
  if (scaling.factor == 1) return {};
  scaling.kind = type && *type == "yarn" ? Kind::kYarn : Kind::kLinear;
  if (gguf.contains("rope_freqs.weight")) {
    return badInput(
        gguf.path() +
        ": factors in rope_freqs.weight beside a rope.scaling.factor are not supported");
  }
  if (scaling.kind == Kind::kLinear) return {};
  ALLOT_TRY(keys.integer("rope.scaling.original_context_length", 1, 1 << 26,
                         &scaling.original_positions, &config->max_positions));
  const double slow = 1, fast = 32;
  ALLOT_TRY(keys.real("rope.scaling.yarn_beta_slow", 1e-3, 1e6, &scaling.low_frequency, &slow));
  ALLOT_TRY(keys.real("rope.scaling.yarn_beta_fast", 1e-3, 1e6, &scaling.high_frequency, &fast));
  if (scaling.high_frequency <= scaling.low_frequency) {
    return badInput(gguf.path() + ": rope.scaling.yarn_beta_fast must be above yarn_beta_slow");
  }
  finishYarn(config);
  return {};
}

Status readTokens(const Gguf& gguf, ModelConfig* config) {
  const Keys keys(gguf, "tokenizer.ggml.");
  const int64_t none = -1;
  int64_t id = -1;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    ALLOT_TRY(keys.integer(key, -1, config->vocab_size - 1, &id, &none));
    const auto token = static_cast<int32_t>(id);
    auto& list = config->eos_tokens;
    if (id >= 0 && std::find(list.begin(), list.end(), token) == list.end()) list.push_back(token);
  }
  return {};
}

// ---- Tokenizer.

// The longest token, in bytes, of a SentencePiece vocabulary: every cut of a token is looked up.
// SentencePiece's own limit is 16 characters; only runs of about 30 blanks are known to be longer.
constexpr size_t kLongestPiece = 256;
constexpr const char* kMark = "\u2581";
constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

json byteLevel(bool words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", words}};
}

json sequence(json first) {
  return {{"type", "Sequence"},
          {"pretokenizers", json::array({std::move(first), byteLevel(false)})}};
}

json split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// Returns true for the names of Llama-3's pattern in tokenizer.ggml.pre.
bool isLlama3(std::string_view pre) {
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
}

// Returns the pre-tokenizer that tokenizer.ggml.pre names. Sets composes if NFC comes before it,
// which llama.cpp leaves out.
Result<json> preTokenizer(const Gguf& gguf, bool* ignore_merges, bool* composes) {
  const auto* name = gguf.find<std::string>("tokenizer.ggml.pre");
  const std::string pre = name ? *name : "(missing)";
  // Smaug's and SmolLM3's is Llama-3's vocabulary without a token in front.
  *ignore_merges = isLlama3(pre) || pre == "smaug-bpe";
  if (*ignore_merges) return sequence(split(kLlama3Words));
  *composes = pre == "qwen2" || pre == "deepseek-r1-qwen";
  if (*composes) return sequence(split(kQwen2Words));
  if (pre == "gpt-2") return byteLevel(true);
  if (pre == "smollm") {
    return json{
        {"type", "Sequence"},
        {"pretokenizers",
         json::array({json{{"type", "Digits"}, {"individual_digits", true}}, byteLevel(true)})}};
  }
  return badInput(gguf.path() + ": tokenizer.ggml.pre " + inQuotes(pre) +
                  " is not supported; supported: llama-bpe, llama3, llama-v3, smaug-bpe, qwen2, "
                  "deepseek-r1-qwen, gpt-2, smollm");
}

// Turns SentencePiece's scores into merges: every pair of normal tokens that forms a normal token,
// the highest score of the token formed first. Pairs of one score have one rank.
Result<json> mergesOf(const Gguf& gguf, const std::unordered_map<std::string_view, int64_t>& vocab,
                      const std::vector<std::string>& tokens, const std::vector<double>& scores) {
  std::vector<std::tuple<double, int64_t, int64_t>> merges;
  for (const auto& [token, id] : vocab) {
    if (token.size() > kLongestPiece) {
      return badInput(gguf.path() + ": tokenizer.ggml.tokens[" + std::to_string(id) +
                      "]: " + inQuotes(token) + " has " + std::to_string(token.size()) +
                      " bytes; at most " + std::to_string(kLongestPiece) + " are supported");
    }
    const double score = scores[static_cast<size_t>(id)];
    if (std::isnan(score)) {
      return badInput(gguf.path() + ": tokenizer.ggml.scores[" + std::to_string(id) +
                      "] is no number");
    }
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xc0) == 0x80) continue;  // within a character
      const auto left = vocab.find(token.substr(0, cut)), right = vocab.find(token.substr(cut));
      if (left == vocab.end() || right == vocab.end()) continue;
      merges.emplace_back(-score, left->second, right->second);
    }
  }
  std::sort(merges.begin(), merges.end());
  json list = json::array();
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [score, left, right] = merges[i];
    if (i == 0 || std::get<0>(merges[i - 1]) != score) list.push_back(json::array());
    list.back().push_back(
        json::array({tokens[static_cast<size_t>(left)], tokens[static_cast<size_t>(right)]}));
  }
  return list;
}

json addedToken(const std::string& content, size_t id, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Returns a post_processor that puts a token in front of a text; null: none. If the file does not
// say, llama.cpp's default applies.
Result<json> postProcessor(const Gguf& gguf, bool pieces, size_t tokens) {
  const auto* pre = gguf.find<std::string>("tokenizer.ggml.pre");
  const auto* wanted = gguf.find<bool>("tokenizer.ggml.add_bos_token");
  const bool adds = wanted ? *wanted : pieces || (pre && isLlama3(*pre));
  if (!adds) return json();
  const Keys keys(gguf, "tokenizer.ggml.");
  const int64_t sentence_piece = 1, none = -1;
  int64_t id = -1;
  ALLOT_TRY(keys.integer("bos_token_id", pieces ? 0 : -1, static_cast<int64_t>(tokens) - 1, &id,
                         pieces ? &sentence_piece : &none));
  if (id < 0)
    return badInput(gguf.path() + " puts a token in front but lacks " +
                    "tokenizer.ggml.bos_token_id, which says which one");
  return json{{"type", "TemplateProcessing"},
              {"single", json::array({json{{"SpecialToken", {{"id", "bos"}}}},
                                      json{{"Sequence", {{"id", "A"}}}}})},
              {"special_tokens", {{"bos", {{"ids", json::array({id})}}}}}};
}

// ---- Tensors.

std::string ggufName(const std::string& name) {
  static const std::vector<std::pair<std::string, std::string>> kNames = {
      {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},
      {"lm_head.", "output."},
      {"model.layers.", "blk."},
      {"input_layernorm.", "attn_norm."},
      {"self_attn.q_proj.", "attn_q."},
      {"self_attn.k_proj.", "attn_k."},
      {"self_attn.v_proj.", "attn_v."},
      {"self_attn.q_norm.", "attn_q_norm."},
      {"self_attn.k_norm.", "attn_k_norm."},
      {"self_attn.o_proj.", "attn_output."},
      {"post_attention_layernorm.", "ffn_norm."},
      {"mlp.gate_proj.", "ffn_gate."},
      {"mlp.up_proj.", "ffn_up."},
      {"mlp.down_proj.", "ffn_down."}};
  std::string out = name;
  for (const auto& [from, to] : kNames) {
    if (const size_t at = out.find(from); at != std::string::npos) out.replace(at, from.size(), to);
  }
  return out;
}

// Returns the divisors of the rotary frequencies, [head_dim / 2]; empty if the file has none.
Result<std::vector<float>> ropeFactors(const Gguf& gguf, const ModelConfig& config) {
  std::vector<float> factors;
  if (!gguf.contains("rope_freqs.weight")) return factors;
  ALLOT_ASSIGN(const GgufTensor tensor, gguf.tensor("rope_freqs.weight", {config.head_dim / 2}));
  factors.resize(static_cast<size_t>(config.head_dim / 2));
  toFloat(tensor, factors.data());
  for (const float factor : factors) {
    if (!(factor >= 1 && factor <= 1e6f)) {
      return badInput(gguf.path() + ": rope_freqs.weight holds " + std::to_string(factor) +
                      ", which is no factor of 1..1e6");
    }
  }
  return factors;
}

}  // namespace

bool isGguf(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".gguf") && std::filesystem::is_regular_file(path, ignored);
}

Result<ModelConfig> ggufConfig(const Gguf& gguf) {
  ALLOT_TRY(checkKeys(gguf, "general.", kGeneralKeys));
  ALLOT_TRY(checkKeys(gguf, "split.", kSplitKeys));
  const auto* architecture = gguf.find<std::string>("general.architecture");
  if (!architecture) return badInput(gguf.path() + " lacks general.architecture");
  const auto& known = architectureCatalogue();
  const auto found = std::find_if(known.begin(), known.end(), [&](const ArchitectureInfo& info) {
    return !info.gguf.empty() && info.gguf == *architecture;
  });
  if (found == known.end()) {
    return badInput(gguf.path() + ": general.architecture " + inQuotes(*architecture) +
                    " is not supported; supported: " + supportedText());
  }
  const std::string prefix = *architecture + ".";
  ALLOT_TRY(checkKeys(gguf, prefix, kArchitectureKeys));
  ALLOT_TRY(checkKeys(gguf, "tokenizer.", kTokenizerKeys, /*matter=*/true));
  const Keys keys(gguf, prefix);
  ModelConfig config;
  config.architecture = found->name;
  config.qkv_bias = *architecture == "qwen2";
  config.qk_norm = *architecture == "qwen3";
  ALLOT_TRY(keys.integer("embedding_length", 1, 1 << 16, &config.hidden_size));
  if (config.hidden_size % kWidthUnit != 0) {
    return badInput(gguf.path() + ": " + *architecture +
                    ".embedding_length: " + std::to_string(config.hidden_size) +
                    " is not supported; supported: a multiple of " + std::to_string(kWidthUnit));
  }
  ALLOT_TRY(keys.integer("feed_forward_length", 1, 1 << 20, &config.intermediate_size));
  ALLOT_TRY(keys.integer("block_count", 1, 1024, &config.layers));
  ALLOT_TRY(keys.integer("attention.head_count", 1, 1024, &config.heads));
  ALLOT_TRY(
      keys.integer("attention.head_count_kv", 1, config.heads, &config.kv_heads, &config.heads));
  const int64_t quotient = config.hidden_size / config.heads;
  ALLOT_TRY(keys.integer("attention.key_length", 1, 1 << 16, &config.head_dim, &quotient));
  if (config.heads % config.kv_heads != 0 || (config.head_dim != 64 && config.head_dim != 128)) {
    return badInput(gguf.path() + ": " + std::to_string(config.heads) + " heads over " +
                    std::to_string(config.kv_heads) + " of " + std::to_string(config.head_dim) +
                    " channels are not supported; supported: a multiple, of 64 or 128 channels");
  }
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    int64_t channels = 0;
    ALLOT_TRY(keys.integer(key, 1, 1 << 16, &channels, &config.head_dim));
    if (channels == config.head_dim) continue;
    return badInput(gguf.path() + ": " + prefix + key + ": " + std::to_string(channels) +
                    " is not supported; supported: all " + std::to_string(config.head_dim) +
                    " channels of a head");
  }
  ALLOT_TRY(keys.integer("context_length", 1, 1 << 26, &config.max_positions));
  ALLOT_TRY(keys.real("attention.layer_norm_rms_epsilon", 1e-12, 0.1, &config.rms_norm_eps));
  const double theta = 10000;
  ALLOT_TRY(keys.real("rope.freq_base", 1, 1e12, &config.rope_theta, &theta));
  ALLOT_TRY(readScaling(gguf, keys, &config));
  for (int64_t l = 0; l < config.layers && *architecture == "smollm3"; ++l) {
    config.unrotated.push_back((l + 1) % kNoRopeInterval == 0);
  }
  const auto* tokens = gguf.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  if (!tokens || tokens->empty()) return badInput(gguf.path() + " lacks tokenizer.ggml.tokens");
  config.vocab_size = static_cast<int64_t>(tokens->size());
  config.tied_embeddings = !gguf.contains("output.weight");
  ALLOT_TRY(readTokens(gguf, &config));
  ALLOT_ASSIGN(config.rope_scaling.factors, ropeFactors(gguf, config));
  ALLOT_TRY(checkKeys(gguf, prefix, kArchitectureKeys, /*matter=*/true));
  return config;
}

Result<json> ggufTokenizer(const Gguf& gguf) {
  ALLOT_TRY(checkKeys(gguf, "tokenizer.", kTokenizerKeys, /*matter=*/true));
  const auto* model = gguf.find<std::string>("tokenizer.ggml.model");
  const auto* tokens = gguf.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto* types = gguf.find<std::vector<int64_t>>("tokenizer.ggml.token_type");
  if (!model || !tokens || !types) {
    return badInput(gguf.path() + " lacks tokenizer.ggml." +
                    (!model    ? "model"
                     : !tokens ? "tokens"
                               : "token_type") +
                    ", without which its tokenizer is not known; download another file");
  }
  if (types->size() != tokens->size()) {
    return badInput(gguf.path() + ": tokenizer.ggml.token_type has " +
                    std::to_string(types->size()) + " entries for " +
                    std::to_string(tokens->size()) + " tokens; download another file");
  }
  const bool pieces = *model == "llama";
  if (!pieces && *model != "gpt2") {
    return badInput(gguf.path() + ": tokenizer.ggml.model " + inQuotes(*model) +
                    " is not supported; supported: gpt2, llama");
  }
  json vocab = json::object(), added = json::array();
  std::unordered_map<std::string_view, int64_t> normal;
  for (size_t id = 0; id < tokens->size(); ++id) {
    const std::string& token = (*tokens)[id];
    const int64_t type = (*types)[id];
    const bool special = type == kControl || (type == kUnknown && pieces);
    if (special || type == kUserDefined) {
      added.push_back(addedToken(token, id, special));
    } else if (type == kNormal || type == kByte) {
      vocab[token] = id;
      if (type == kNormal) normal.emplace(token, static_cast<int64_t>(id));
    }
  }
  json out = {{"added_tokens", std::move(added)}, {"model", {{"type", "BPE"}}}};
  if (pieces) {
    const auto* scores = gguf.find<std::vector<double>>("tokenizer.ggml.scores");
    if (!scores || scores->size() != tokens->size()) {
      return badInput(gguf.path() + " lacks a score of tokenizer.ggml.scores each");
    }
    out["model"]["byte_fallback"] = true;
    ALLOT_ASSIGN(out["model"]["merges"], mergesOf(gguf, normal, *tokens, *scores));
    const auto* prefix = gguf.find<bool>("tokenizer.ggml.add_space_prefix");
    json steps = json::array();
    if (!prefix || *prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}});
    out["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
    json undo =
        json::array({json{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
                     json{{"type", "ByteFallback"}}, json{{"type", "Fuse"}}});
    if (!prefix || *prefix) {
      undo.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    out["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(undo)}};
  } else {
    const auto* merges = gguf.find<std::vector<std::string>>("tokenizer.ggml.merges");
    if (!merges) return badInput(gguf.path() + " lacks tokenizer.ggml.merges");
    bool ignore_merges = false, composes = false;
    ALLOT_ASSIGN(out["pre_tokenizer"], preTokenizer(gguf, &ignore_merges, &composes));
    if (composes) out["normalizer"] = {{"type", "NFC"}};
    out["model"]["merges"] = *merges;
    out["model"]["ignore_merges"] = ignore_merges;
    out["decoder"] = byteLevel(true);
  }
  out["model"]["vocab"] = std::move(vocab);
  ALLOT_ASSIGN(out["post_processor"], postProcessor(gguf, pieces, tokens->size()));
  return out;
}

Status appendGgufTensor(const Gguf& gguf, const ModelConfig& config, const std::string& name,
                        const std::vector<int64_t>& shape, std::vector<float>* out) {
  ALLOT_ASSIGN(const GgufTensor tensor, gguf.tensor(ggufName(name), shape));
  const size_t start = out->size();
  out->resize(start + static_cast<size_t>(tensor.elements()));
  float* numbers = out->data() + start;
  toFloat(tensor, numbers);
  // RoPE rotates pairs of neighbouring channels in llama.cpp, and pairs half a head apart in
  // Hugging Face's models. Converters therefore interleave the two halves of each head's query and
  // key rows, except for Qwen's models. The loop restores Hugging Face's order.
  const bool interleaved = !config.architecture.starts_with("Qwen");
  const bool is_query = name.ends_with("q_proj.weight"), is_key = name.ends_with("k_proj.weight");
  if (!interleaved || (!is_query && !is_key)) return {};
  const int64_t width = shape[1], half = config.head_dim / 2;
  std::vector<float> head(static_cast<size_t>(config.head_dim * width));
  for (int64_t h = 0; h < shape[0] / config.head_dim; ++h) {
    float* rows = numbers + h * config.head_dim * width;
    std::copy_n(rows, head.size(), head.data());
    for (int64_t i = 0; i < half; ++i) {
      std::copy_n(head.data() + 2 * i * width, width, rows + i * width);
      std::copy_n(head.data() + (2 * i + 1) * width, width, rows + (half + i) * width);
    }
  }
  return {};
}

Status checkGgufTensor(const Gguf& gguf, const std::string& name,
                       const std::vector<int64_t>& shape) {
  const auto found = gguf.tensor(ggufName(name), shape);
  return found ? Status() : tl::unexpected<Error>(found.error());
}

Status checkNoOthers(const Gguf& gguf, const std::set<std::string>& names) {
  std::set<std::string> used{"rope_freqs.weight"};
  for (const std::string& name : names) used.insert(ggufName(name));
  for (const std::string& name : gguf.names()) {
    if (used.contains(name)) continue;
    return badInput(gguf.path() + ": tensor " + inQuotes(name) + kWayOut);
  }
  return {};
}

bool hasGgufTensor(const Gguf& gguf, const std::string& name) {
  return gguf.contains(ggufName(name));
}

}  // namespace allot
