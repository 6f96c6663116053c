#pragma once
// The attention of a dense prefill, on the CPU or a GPU. Private to model/, like all that knows
// at::Tensor.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/model_config.h"

namespace allot {

// Causal attention within the model's sliding window, q [n, heads, d], k and v [n, kv_heads, d],
// float32; only queries from `first` on. Returns [n - first, heads * d].
at::Tensor causalAttention(const ModelConfig& config, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, int64_t first);

}  // namespace allot
