#pragma once
// The attention of a dense prefill on a GPU, where LibTorch's own does not do. Private to
// worker/model/, like all that knows at::Tensor.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/model_config.h"

namespace allot {

// How many of a prompt's queries have their scores in memory at once. By the prompt's length alone,
// whatever memory there is: sums over other pieces have other last bits.
int64_t queriesAtOnce(const ModelConfig& config, int64_t positions);

// Causal attention within the model's sliding window, q [n, heads, d], k and v [n, kv_heads, d],
// float32; only queries from `first` on. Returns [n - first, heads * d].
at::Tensor causalAttention(const ModelConfig& config, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, int64_t first);

}  // namespace allot
