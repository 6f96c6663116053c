#include "worker/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/spec/model_catalogue.h"
#include "core/words.h"
#include "worker/model/gguf_model.h"
#include "worker/model/json_file.h"

namespace allot {
namespace {

constexpr const char* kQwen2 = "Qwen2ForCausalLM";
constexpr const char* kQwen3 = "Qwen3ForCausalLM";
constexpr int64_t kQwen3HeadDim = 128;  // if config.json does not say
constexpr const char* kMistral = "MistralForCausalLM";
constexpr const char* kSmolLm3 = "SmolLM3ForCausalLM";
constexpr float kSmolLm3Theta = 2e6f;    // if config.json does not say
constexpr int64_t kSmolLm3Interval = 4;  // the same
constexpr int64_t kMostPositions = 1 << 26;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr size_t kMostEosTokens = 64;

// Reads members of the file by key, and checks the ranges of numbers.
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

  // Reads a number of lowest..highest. `range` is the text of these bounds.
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

  // Does real(), but keeps `out` if the member is missing.
  Status realIfThere(const char* key, double lowest, double highest, const char* range,
                     float& out) const {
    const nlohmann::json* value = member(root_, key);
    return value == nullptr ? Status() : real(value, key, lowest, highest, range, out);
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
                    joined(architectureNames()));
  }
  const std::vector<std::string> known = architectureNames();
  const auto found = std::find(known.begin(), known.end(), (*names)[0].get<std::string>());
  if (found == known.end()) {
    return badInput("config.json: architecture " + described((*names)[0]) +
                    " is not supported; supported: " + joined(architectureNames()));
  }
  config.architecture = *found;
  config.qkv_bias = config.architecture == kQwen2;
  config.qk_norm = config.architecture == kQwen3;
  return {};
}

Status readSizes(const nlohmann::json& root, ModelConfig& config) {
  const Reader reader(root);
  ALLOT_TRY(reader.integer("vocab_size", 1, 1 << 24, config.vocab_size));
  ALLOT_TRY(reader.integer("hidden_size", 1, 1 << 16, config.hidden_size));
  if (config.hidden_size % kWidthUnit != 0) {
    return badInput("config.json: hidden_size: " + std::to_string(config.hidden_size) +
                    " is not supported; supported: a multiple of " + std::to_string(kWidthUnit));
  }
  ALLOT_TRY(reader.integer("intermediate_size", 1, 1 << 20, config.intermediate_size));
  ALLOT_TRY(reader.integer("num_hidden_layers", 1, 1024, config.layers));
  ALLOT_TRY(reader.integer("num_attention_heads", 1, 1024, config.heads));
  ALLOT_TRY(reader.integer("num_key_value_heads", 1, config.heads, config.kv_heads, &config.heads));
  if (config.heads % config.kv_heads != 0) {
    return badInput(
        "config.json: num_attention_heads: " + std::to_string(config.heads) +
        " is not a multiple of num_key_value_heads: " + std::to_string(config.kv_heads));
  }
  const bool divides = config.architecture != kQwen3;
  if (divides && member(root, "head_dim") == nullptr && config.hidden_size % config.heads != 0) {
    return badInput(
        "config.json lacks head_dim, and hidden_size: " + std::to_string(config.hidden_size) +
        " is not a multiple of num_attention_heads: " + std::to_string(config.heads));
  }
  const int64_t missing = divides ? config.hidden_size / config.heads : kQwen3HeadDim;
  ALLOT_TRY(reader.integer("head_dim", 1, 1 << 16, config.head_dim, &missing));
  if (config.head_dim != 64 && config.head_dim != 128) {
    return badInput("config.json: head_dim: " + std::to_string(config.head_dim) +
                    " is not supported by the attention kernels; supported: 64, 128");
  }
  return reader.integer("max_position_embeddings", 1, kMostPositions, config.max_positions);
}

// Returns what YaRN multiplies rotated queries and keys by.
float yarnMagnitude(float factor, float weight) {
  return factor <= 1 ? 1.0f : 0.1f * weight * std::log(factor) + 1.0f;
}

Status readYarn(const nlohmann::json& rope, const char* where, ModelConfig& config) {
  const Reader reader(rope);
  RopeScaling& scaling = config.rope_scaling;
  if (member(rope, "factor") == nullptr) {
    scaling.factor = std::max(1.0f, static_cast<float>(config.max_positions) /
                                        static_cast<float>(scaling.original_positions));
  }
  scaling.high_frequency = 32;
  ALLOT_TRY(reader.realIfThere("beta_fast", 1e-3, 1e6, "1e-3..1e6", scaling.high_frequency));
  ALLOT_TRY(reader.realIfThere("beta_slow", 1e-3, 1e6, "1e-3..1e6", scaling.low_frequency));
  if (scaling.high_frequency <= scaling.low_frequency) {
    return badInput(Reader::at(where) + "beta_fast must be above beta_slow");
  }
  ALLOT_ASSIGN(scaling.whole_channels,
               boolMember(rope, "truncate", true, std::string("config.json: ") + where));
  finishYarn(&config);
  float weight = 0, divisor = 0;
  ALLOT_TRY(reader.realIfThere("mscale", 0, 100, "0..100", weight));
  ALLOT_TRY(reader.realIfThere("mscale_all_dim", 0, 100, "0..100", divisor));
  if (weight > 0 && divisor > 0) {
    scaling.magnitude =
        yarnMagnitude(scaling.factor, weight) / yarnMagnitude(scaling.factor, divisor);
  }
  return reader.realIfThere("attention_factor", 1e-3, 1e3, "1e-3..1e3", scaling.magnitude);
}

// Reads the scaling of rotary positions from `rope`. Older files have `type` for `rope_type`.
Status readScaling(const nlohmann::json& root, const nlohmann::json& rope, const char* where,
                   ModelConfig& config) {
  const nlohmann::json* type = member(rope, "rope_type");
  if (type == nullptr) type = member(rope, "type");
  if (type == nullptr && rope.contains("rope_type") && member(rope, "factor") != nullptr) {
    return badInput(
        Reader::at(where) +
        "rope_type is null beside a factor; write what the factor is of, or \"default\" "
        "without it");
  }
  if (type == nullptr || *type == "default") return {};
  using Kind = RopeScaling::Kind;
  const Reader reader(rope);
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = *type == "linear"   ? Kind::kLinear
                 : *type == "llama3" ? Kind::kLlama3
                 : *type == "yarn"   ? Kind::kYarn
                                     : Kind::kNone;
  if (scaling.kind == Kind::kNone) {
    return badInput(Reader::at(where) + "rope_type " + described(*type) +
                    " is not supported; supported: \"default\", \"linear\", \"llama3\", \"yarn\"");
  }
  // Of YaRN null stands for the ratio of the positions.
  const bool ratio = scaling.kind == Kind::kYarn && rope.contains("factor");
  if (!ratio || member(rope, "factor") != nullptr) {
    ALLOT_TRY(reader.real(member(rope, "factor"), "factor", 1, 1e6, "1..1e6", scaling.factor));
  }
  if (scaling.kind == Kind::kLinear) return {};
  const char* original = "original_max_position_embeddings";
  const bool outside = member(root, original) != nullptr;  // which transformers prefers
  ALLOT_TRY(
      Reader(outside ? root : rope)
          .integer(original, 1, kMostPositions, scaling.original_positions, &config.max_positions));
  if (scaling.kind == Kind::kYarn) return readYarn(rope, where, config);
  ALLOT_TRY(reader.real(member(rope, "low_freq_factor"), "low_freq_factor", 1e-3, 1e6, "1e-3..1e6",
                        scaling.low_frequency));
  ALLOT_TRY(reader.real(member(rope, "high_freq_factor"), "high_freq_factor", 1e-3, 1e6,
                        "1e-3..1e6", scaling.high_frequency));
  if (scaling.high_frequency > scaling.low_frequency) return {};
  return badInput(Reader::at(where) + "high_freq_factor must be above low_freq_factor");
}

// Reads rope_theta and the scaling. Newer files have both in an object rope_parameters, older ones
// the scaling in rope_scaling.
Status readRope(const nlohmann::json& root, ModelConfig& config) {
  const Reader reader(root);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const nlohmann::json* value = member(root, key);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      return badInput(Reader::at(key) + described(*value) + " is not an object");
    }
    ALLOT_TRY(readScaling(root, *value, key, config));
  }
  const nlohmann::json* parameters = member(root, "rope_parameters");
  const nlohmann::json& rope = parameters == nullptr ? root : *parameters;
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

// Reads sliding_window. Mistral's applies if it is there. Qwen's has a switch, which must be off:
// it would apply to some layers only.
Status readWindow(const nlohmann::json& root, ModelConfig& config) {
  if (config.architecture == kQwen2 || config.architecture == kQwen3 ||
      config.architecture == kSmolLm3) {
    ALLOT_ASSIGN(const bool set, boolMember(root, "use_sliding_window", false, "config.json"));
    if (!set) return {};
    return badInput(Reader::at("use_sliding_window") + "true is not supported for " +
                    config.architecture.substr(0, config.architecture.find("For")) +
                    "; only models that attend to all keys are");
  }
  if (config.architecture != kMistral || member(root, "sliding_window") == nullptr) return {};
  return Reader(root).integer("sliding_window", 1, kMostPositions, config.sliding_window);
}

// Reads which layers have positions: no_rope_layers has 1 for those, 0 for the others.
Status readRotated(const nlohmann::json& root, ModelConfig& config) {
  if (config.architecture != kSmolLm3) return {};
  const nlohmann::json* list = member(root, "no_rope_layers");
  int64_t interval = kSmolLm3Interval;
  ALLOT_TRY(Reader(root).integer("no_rope_layer_interval", 1, 1024, interval, &kSmolLm3Interval));
  for (int64_t l = 0; l < config.layers; ++l) {
    int64_t rotates = (l + 1) % interval == 0 ? 0 : 1;
    const auto at = static_cast<size_t>(l);
    if (list != nullptr &&
        (!list->is_array() || list->size() <= at || !integerIn((*list)[at], 0, 1, rotates))) {
      return badInput(Reader::at("no_rope_layers") + described(*list) +
                      " is not a list of 0 or 1 for each of " + std::to_string(config.layers) +
                      " layers");
    }
    config.unrotated.push_back(rotates == 0);
  }
  return {};
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

// Reads eos_token_id, a token or a list of some, in place of those read before.
Status readEnds(const nlohmann::json& root, const std::string& file, ModelConfig& config) {
  if (!root.is_object()) return badInput(file + " is not a JSON object");
  const nlohmann::json* eos = member(root, "eos_token_id");
  if (eos == nullptr) return {};
  const std::string where = file + ": eos_token_id: ";
  if (eos->is_array() && eos->empty()) {
    return badInput(where + "the list is empty; name the tokens, or remove the key");
  }
  const nlohmann::json list = eos->is_array() ? *eos : nlohmann::json::array({*eos});
  if (list.size() > kMostEosTokens) {
    return badInput(where + "more than " + std::to_string(kMostEosTokens) + " tokens");
  }
  config.eos_tokens.clear();
  for (const nlohmann::json& value : list) {
    int64_t id = 0;
    if (!integerIn(value, 0, config.vocab_size - 1, id)) {
      return badInput(where + described(value) + " is not a token id of 0.." +
                      std::to_string(config.vocab_size - 1));
    }
    config.eos_tokens.push_back(static_cast<int32_t>(id));
  }
  return {};
}

}  // namespace

void finishYarn(ModelConfig* config) {
  RopeScaling& scaling = config->rope_scaling;
  scaling.magnitude = yarnMagnitude(scaling.factor, 1);
  // Qwen2.5's files have the positions before the scaling, other files those after it.
  const double scaled =
      static_cast<double>(scaling.factor) * static_cast<double>(scaling.original_positions);
  const double most = std::min<double>(scaled, kMostPositions);
  config->max_positions = std::max(config->max_positions, static_cast<int64_t>(most));
}

Result<ModelConfig> ModelConfig::load(const std::string& folder) {
  if (isGguf(folder)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(folder));
    return ggufConfig(gguf);
  }
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  ALLOT_ASSIGN(const nlohmann::json root, readJsonFile(path, kMaxConfigBytes));
  if (!root.is_object()) return badInput(path + " is not a JSON object");
  ModelConfig config;
  ALLOT_TRY(readArchitecture(root, config));
  if (member(root, "quantization_config") != nullptr) {
    return badInput(
        "config.json: quantization_config: quantised weights are read from GGUF files alone; name "
        "one, or the folder of the model in bfloat16, float16 or float32");
  }
  ALLOT_TRY(readSizes(root, config));
  const Reader reader(root);
  ALLOT_TRY(reader.real(member(root, "rms_norm_eps"), "rms_norm_eps", 1e-12, 0.1, "1e-12..0.1",
                        config.rms_norm_eps));
  if (config.architecture == kSmolLm3) config.rope_theta = kSmolLm3Theta;
  ALLOT_TRY(readRope(root, config));
  ALLOT_TRY(readRotated(root, config));
  ALLOT_TRY(readWindow(root, config));
  ALLOT_TRY(readActivation(root));
  ALLOT_ASSIGN(config.tied_embeddings, boolMember(root, "tie_word_embeddings",
                                                  config.architecture == kSmolLm3, "config.json"));
  ALLOT_TRY(readEnds(root, "config.json", config));
  const std::string ends = (std::filesystem::path(folder) / "generation_config.json").string();
  std::error_code ignored;
  if (!std::filesystem::exists(ends, ignored)) return config;
  ALLOT_ASSIGN(const nlohmann::json generation, readJsonFile(ends, kMaxConfigBytes));
  ALLOT_TRY(readEnds(generation, "generation_config.json", config));
  return config;
}

}  // namespace allot
