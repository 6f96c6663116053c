#include "model/model_config.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "model/json_file.h"

namespace allot {
namespace {

constexpr const char* kSupported = "LlamaForCausalLM";
constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr size_t kMostEosTokens = 64;

// Numbers of the file by key, each checked for its range.
class Reader {
 public:
  explicit Reader(const nlohmann::json& root) : root_(root) {}

  // `fallback` is for a missing key; without one the key is required.
  Status integer(const char* key, int64_t lowest, int64_t highest, int64_t& out,
                 const int64_t* fallback = nullptr) const {
    const nlohmann::json* value = member(root_, key);
    if (value == nullptr) {
      if (fallback == nullptr) return missing(key);
      out = *fallback;
      return {};
    }
    if (!value->is_number_integer()) {
      return badInput(at(key) + described(*value) + " is not an integer");
    }
    if (!integerIn(*value, lowest, highest, out)) {
      return badInput(at(key) + described(*value) + " is out of range " + std::to_string(lowest) +
                      ".." + std::to_string(highest));
    }
    return {};
  }

  // Finite and lowest <= value <= highest; the bounds are given as text for the message.
  Status real(const nlohmann::json* value, const char* key, double lowest, double highest,
              const char* range, float& out) const {
    if (value == nullptr) return missing(key);
    const double number =
        value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= lowest && number <= highest)) {
      return badInput(at(key) + described(*value) + " is not a number of " + range);
    }
    out = static_cast<float>(number);
    return {};
  }

  Status mustBeFalse(const char* key) const {
    ALLOT_ASSIGN(const bool set, boolMember(root_, key, false, "config.json"));
    if (set) return badInput(at(key) + "true is not supported; only layers without biases are");
    return {};
  }

  static Status missing(const char* key) {
    return badInput(std::string("config.json lacks ") + key);
  }
  static std::string at(const char* key) { return std::string("config.json: ") + key + ": "; }

 private:
  const nlohmann::json& root_;
};

Status readArchitecture(const nlohmann::json& root, ModelConfig& config) {
  const nlohmann::json* names = member(root, "architectures");
  if (names == nullptr) return Reader::missing("architectures");
  if (!names->is_array() || names->size() != 1 || !(*names)[0].is_string()) {
    return badInput("config.json: architectures must be a list of one name; supported: " +
                    std::string(kSupported));
  }
  if ((*names)[0] != kSupported) {
    return badInput("config.json: architecture " + described((*names)[0]) +
                    " is not supported; supported: " + kSupported);
  }
  config.architecture = kSupported;
  return {};
}

Status readSizes(const nlohmann::json& root, ModelConfig& config) {
  const Reader reader(root);
  ALLOT_TRY(reader.integer("vocab_size", 1, 1 << 24, config.vocab_size));
  ALLOT_TRY(reader.integer("hidden_size", 1, 1 << 16, config.hidden_size));
  ALLOT_TRY(reader.integer("intermediate_size", 1, 1 << 20, config.intermediate_size));
  ALLOT_TRY(reader.integer("num_hidden_layers", 1, 1024, config.layers));
  ALLOT_TRY(reader.integer("num_attention_heads", 1, 1024, config.heads));
  ALLOT_TRY(reader.integer("num_key_value_heads", 1, config.heads, config.kv_heads, &config.heads));
  if (config.heads % config.kv_heads != 0) {
    return badInput(
        "config.json: num_attention_heads: " + std::to_string(config.heads) +
        " is not a multiple of num_key_value_heads: " + std::to_string(config.kv_heads));
  }
  if (member(root, "head_dim") == nullptr && config.hidden_size % config.heads != 0) {
    return badInput(
        "config.json lacks head_dim, and hidden_size: " + std::to_string(config.hidden_size) +
        " is not a multiple of num_attention_heads: " + std::to_string(config.heads));
  }
  const int64_t quotient = config.hidden_size / config.heads;
  ALLOT_TRY(reader.integer("head_dim", 1, 1 << 16, config.head_dim, &quotient));
  if (config.head_dim != 64 && config.head_dim != 128) {
    return badInput("config.json: head_dim: " + std::to_string(config.head_dim) +
                    " is not supported by the attention kernels; supported: 64, 128");
  }
  return reader.integer("max_position_embeddings", 1, 1 << 26, config.max_positions);
}

// rope_theta and its variants. Newer files keep them in an object rope_parameters.
Status readRope(const nlohmann::json& root, ModelConfig& config) {
  const Reader reader(root);
  const nlohmann::json* parameters = member(root, "rope_parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return badInput(Reader::at("rope_parameters") + described(*parameters) + " is not an object");
  }
  const nlohmann::json& rope = parameters == nullptr ? root : *parameters;
  if (parameters != nullptr) {
    const nlohmann::json* type = member(rope, "rope_type");
    if (type != nullptr && *type != "default") {
      return badInput(Reader::at("rope_parameters") + "rope_type " + described(*type) +
                      " is not supported; supported: \"default\"");
    }
  }
  if (const nlohmann::json* scaling = member(root, "rope_scaling"); scaling != nullptr) {
    return badInput(Reader::at("rope_scaling") + described(*scaling) +
                    " is not supported; only models whose rope_scaling is null are");
  }
  for (const nlohmann::json* place : {&root, &rope}) {
    const nlohmann::json* rotated = member(*place, "partial_rotary_factor");
    if (rotated != nullptr && *rotated != 1) {
      return badInput(Reader::at("partial_rotary_factor") + described(*rotated) +
                      " is not supported; supported: 1");
    }
  }
  const nlohmann::json* theta = member(rope, "rope_theta");
  if (theta == nullptr && parameters == nullptr) return {};  // the default, as in Hugging Face's
  return reader.real(theta, "rope_theta", 1, 1e12, "1..1e12", config.rope_theta);
}

Status readActivation(const nlohmann::json& root) {
  const nlohmann::json* activation = member(root, "hidden_act");
  if (activation != nullptr && *activation != "silu") {
    return badInput(Reader::at("hidden_act") + described(*activation) +
                    " is not supported; supported: \"silu\"");
  }
  const Reader reader(root);
  ALLOT_TRY(reader.mustBeFalse("attention_bias"));
  return reader.mustBeFalse("mlp_bias");
}

Status readToken(const nlohmann::json& value, const char* key, int64_t vocab_size, int32_t& out) {
  int64_t id = 0;
  if (!integerIn(value, 0, vocab_size - 1, id)) {
    return badInput(Reader::at(key) + described(value) + " is not a token id of 0.." +
                    std::to_string(vocab_size - 1));
  }
  out = static_cast<int32_t>(id);
  return {};
}

Status readTokens(const nlohmann::json& root, ModelConfig& config) {
  if (const nlohmann::json* bos = member(root, "bos_token_id"); bos != nullptr) {
    ALLOT_TRY(readToken(*bos, "bos_token_id", config.vocab_size, config.bos_token));
  }
  const nlohmann::json* eos = member(root, "eos_token_id");
  if (eos == nullptr) return {};
  const nlohmann::json list = eos->is_array() ? *eos : nlohmann::json::array({*eos});
  if (list.size() > kMostEosTokens) {
    return badInput(Reader::at("eos_token_id") + "more than " + std::to_string(kMostEosTokens) +
                    " tokens");
  }
  for (const nlohmann::json& value : list) {
    int32_t id = -1;
    ALLOT_TRY(readToken(value, "eos_token_id", config.vocab_size, id));
    config.eos_tokens.push_back(id);
  }
  return {};
}

}  // namespace

Result<ModelConfig> ModelConfig::load(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  ALLOT_ASSIGN(const nlohmann::json root, readJsonFile(path, kMaxFileBytes));
  if (!root.is_object()) return badInput(path + " is not a JSON object");
  ModelConfig config;
  ALLOT_TRY(readArchitecture(root, config));
  ALLOT_TRY(readSizes(root, config));
  const Reader reader(root);
  ALLOT_TRY(reader.real(member(root, "rms_norm_eps"), "rms_norm_eps", 1e-12, 0.1, "1e-12..0.1",
                        config.rms_norm_eps));
  ALLOT_TRY(readRope(root, config));
  ALLOT_TRY(readActivation(root));
  ALLOT_ASSIGN(config.tied_embeddings,
               boolMember(root, "tie_word_embeddings", false, "config.json"));
  ALLOT_TRY(readTokens(root, config));
  return config;
}

}  // namespace allot
