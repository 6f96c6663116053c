#pragma once
// KvScales: the scales of eight-bit keys and values that a checkpoint has. Read once while a
// decoder is loaded; any thread.
//
// They are used unless the experiment has a profile, and are 1.0 where a checkpoint has none.
// Scales made from the first prompt of a worker would make bits depend on the order of questions,
// and a run could not be replayed.
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "worker/model/model_config.h"

namespace allot {

struct KvScales {
  std::vector<float> keys;    // [layers, kv_heads]; empty: 1.0 everywhere
  std::vector<float> values;  // as keys
};

// Reads k_scale and v_scale of each layer's self_attn, or of its k_proj and v_proj. Each has one
// number or one for each KV head; a number is code * scale. A GGUF file has none. kUsage: another
// shape, or a scale that is not a normal number from 2^-100 to 2^100; errors of Safetensors.
Result<KvScales> readKvScales(const std::string& path, const ModelConfig& config);

// Returns true if readKvScales() reads a tensor of this name.
bool isKvScale(std::string_view tensor);

}  // namespace allot
