#pragma once
// ModelConfig: the fields of a Hugging Face config.json that the decoder needs, checked.
// A value; any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // may differ from hidden_size / heads
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  int64_t max_positions = 0;
  bool tied_embeddings = false;
  int32_t bos_token = -1;  // -1: none
  std::vector<int32_t> eos_tokens;

  // Reads `folder`/config.json. Errors (kUsage) name the file, the key and the mend; an
  // unsupported architecture is refused by name with the list of supported ones.
  static Result<ModelConfig> load(const std::string& folder);
};

}  // namespace allot
