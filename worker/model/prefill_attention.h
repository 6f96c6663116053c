#pragma once
// The attention of a dense prefill on a GPU, for cases that LibTorch's own does not support. Pure
// functions on the current stream. Private to worker/model/, like all units with at::Tensor.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/model_config.h"

namespace allot {

// Returns how many queries of a prompt have their scores in memory at once. It depends only on the
// prompt's length and not on free memory: other chunks would give sums other last bits.
int64_t queriesAtOnce(const ModelConfig& config, int64_t positions);

// Computes causal attention within the model's sliding window, for queries from `first` on. q: [n,
// heads, d], k and v: [n, kv_heads, d], float32. Returns [n - first, heads * d].
at::Tensor causalAttention(const ModelConfig& config, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, int64_t first);

}  // namespace allot
