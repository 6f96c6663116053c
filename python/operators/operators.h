#pragma once
// The operators' functions, for tensors on the CPU or on a GPU. library.cpp has their schemas and
// describes the arguments. A refusal is a ValueError of one sentence. failureOf() returns the
// errors that only a GPU sees.
//
// On a GPU the functions launch on PyTorch's stream. They wait for the device in plans, failureOf()
// and the first appendKv() of a workspace alone. Any thread; calls with one workspace take turns.
#include <string>
#include <tuple>
#include <vector>

#include "python/operators/tensors.h"

namespace allot::bindings {

// cache_ops.cpp
std::vector<at::Tensor> makeCache(int64_t pages, int64_t kv_heads, int64_t page_size,
                                  int64_t head_dim, c10::optional<at::ScalarType> dtype,
                                  c10::optional<at::Device> device, int64_t shadow_bits,
                                  bool bounds, bool value_sums);
void appendKv(const at::Tensor& keys, const at::Tensor& values, at::TensorList cache,
              const at::Tensor& page_table, const at::Tensor& starts, int64_t workspace);
at::Tensor meanValues(at::TensorList cache, const at::Tensor& page_table,
                      const at::Tensor& lengths);

// decode_ops.cpp
void planDecode(int64_t workspace, at::TensorList cache, const std::string& method, int64_t rows,
                int64_t heads, int64_t max_length, int64_t max_budget, bool statistics);
std::tuple<at::Tensor, at::Tensor> decodeAttention(
    const at::Tensor& queries, at::TensorList cache, const at::Tensor& page_table,
    const at::Tensor& lengths, const at::Tensor& budgets, const at::Tensor& sequences,
    const at::Tensor& steps, const std::string& method, int64_t workspace, int64_t layer,
    int64_t seed, const OptionalDouble& scale, int64_t window, const OptionalTensor& bias,
    const OptionalTensor& zero_budget_values, int64_t zero_budget_window,
    const OptionalTensor& statistics, const OptionalTensor& drawn, bool with_lse);
std::string failureOf(int64_t workspace);

// prefill_ops.cpp
void planPrefill(int64_t workspace, at::TensorList cache, const std::string& method, int64_t heads,
                 int64_t count, int64_t keys);
at::Tensor prefillSelect(const at::Tensor& queries, at::TensorList cache,
                         const at::Tensor& page_table, int64_t first, const std::string& method,
                         int64_t workspace, const OptionalDouble& scale, int64_t window,
                         const OptionalTensor& tau);
std::tuple<at::Tensor, at::Tensor> prefillAttend(
    const at::Tensor& queries, at::TensorList cache, const at::Tensor& page_table, int64_t first,
    const std::string& method, int64_t workspace, const OptionalTensor& blocks,
    const OptionalDouble& scale, int64_t window, int64_t layer, int64_t seed, int64_t sequence,
    const OptionalTensor& budgets, int64_t zero_budget_window, bool zero_budget_means,
    bool with_lse);

// Returns the positions in a block of queries and in a block of keys of a method for prefill.
std::pair<int64_t, int64_t> blockSizes(const std::string& method);

// Returns the scale of scores, 1 / sqrt(head_dim) without an argument.
float scaleOf(const OptionalDouble& scale, int head_dim);

}  // namespace allot::bindings
