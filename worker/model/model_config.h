#pragma once
// ModelConfig: what the decoder needs of a config.json or a GGUF file, checked. A value; any
// thread.
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// How rotary frequencies are scaled. kLinear divides all by `factor`. The others divide those of
// long waves, keep those of short waves, and interpolate between: kLlama3 by frequency, kYarn by
// channel.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };

  Kind kind = Kind::kNone;
  float factor = 1;
  float low_frequency = 1;   // waves longer than original_positions / low_frequency are long
  float high_frequency = 1;  // waves shorter than original_positions / high_frequency are short
  int64_t original_positions = 0;
  bool whole_channels = true;  // kYarn: both bounds are rounded outwards to channels
  float magnitude = 1;         // kYarn: of the rotated queries and keys
  // [head_dim / 2] divisors of the frequencies, of a GGUF file; empty: the fields above apply.
  std::vector<float> factors;
};

// Hidden sizes are multiples of this number of channels, which the kernels process at a time.
inline constexpr int64_t kWidthUnit = 16;

struct ModelConfig {
  std::string architecture;  // a name of core/spec/model_catalogue.h
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // 64 or 128; may differ from hidden_size / heads
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  RopeScaling rope_scaling;
  std::vector<bool> unrotated;  // [layers], SmolLM3: layers without positions; empty: none
  bool qkv_bias = false;        // Qwen2: queries, keys and values have biases
  bool qk_norm = false;         // Qwen3: each head's query and key is normalised before rotation
  int64_t sliding_window = 0;   // keys that a position attends to, itself included; 0: all
  int64_t max_positions = 0;
  bool tied_embeddings = false;
  std::vector<int32_t> eos_tokens;

  bool rotates(int64_t layer) const {
    return unrotated.empty() || !unrotated[static_cast<size_t>(layer)];
  }

  // Reads `path`/config.json, with the end tokens of the generation_config.json beside it, or a
  // GGUF file. kUsage names file and key; kIo: it cannot be read. An unsupported architecture is
  // refused by name, with the list of supported ones.
  static Result<ModelConfig> load(const std::string& path);
};

// Sets what follows from a YaRN `scaling` once its factor and its original positions are known: the
// magnitude, and the positions of a model that states those before the scaling.
void finishYarn(ModelConfig* config);

}  // namespace allot
