#include "worker/model/kv_scales.h"

#include <charconv>

#include "worker/model/gguf_model.h"
#include "worker/model/safetensors.h"

namespace allot {
namespace {

// Reads the layer's scales of keys (which: "k") or values ("v") to `scales`, [kv_heads].
Status readScales(const Safetensors& file, int64_t layer, const std::string& which,
                  const ModelConfig& config, float* scales, bool* found) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
  for (const std::string& place : {std::string(), which + "_proj."}) {
    const std::string name = prefix + place + which + "_scale";
    if (!file.contains(name)) continue;
    const std::string mend = "; or set spec.model.kvDtype to bfloat16";
    ALLOT_ASSIGN(const TensorView view, file.tensor(name));
    if (view.elements() != 1 && view.elements() != config.kv_heads) {
      return badInput("tensor " + name + " has " + std::to_string(view.elements()) +
                      " numbers: scales of eight-bit keys and values are 1 or " +
                      std::to_string(config.kv_heads) + ", one for each KV head" + mend);
    }
    std::vector<float> read(static_cast<size_t>(view.elements()));
    toFloat(view, read.data());
    for (const float scale : read) {
      if (scale >= 0x1p-100f && scale <= 0x1p100f) continue;
      char digits[32];
      const auto end = std::to_chars(digits, digits + sizeof digits, scale);
      return badInput("tensor " + name + " has the scale " + std::string(digits, end.ptr) +
                      ", which is not from 2^-100 to 2^100" + mend);
    }
    for (int64_t h = 0; h < config.kv_heads; ++h) scales[h] = read[read.size() == 1 ? 0 : h];
    *found = true;
    break;
  }
  return {};
}

}  // namespace

Result<KvScales> readKvScales(const std::string& path, const ModelConfig& config) {
  KvScales read;
  if (isGguf(path)) return read;
  ALLOT_ASSIGN(const Safetensors file, Safetensors::open(path));
  const auto all = static_cast<size_t>(config.layers * config.kv_heads);
  read.keys.assign(all, 1.0f);
  read.values.assign(all, 1.0f);
  bool found = false;
  for (int64_t l = 0; l < config.layers; ++l) {
    const int64_t at = l * config.kv_heads;
    ALLOT_TRY(readScales(file, l, "k", config, read.keys.data() + at, &found));
    ALLOT_TRY(readScales(file, l, "v", config, read.values.data() + at, &found));
  }
  if (!found) return KvScales{};
  return read;
}

bool isKvScale(std::string_view tensor) {
  for (const std::string_view end : {".self_attn.k_scale", ".self_attn.v_scale",
                                     ".self_attn.k_proj.k_scale", ".self_attn.v_proj.v_scale"}) {
    if (tensor.ends_with(end)) return true;
  }
  return false;
}

}  // namespace allot
