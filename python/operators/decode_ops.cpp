#include "python/operators/operators.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>

#include "python/operators/workspaces.h"

namespace allot::bindings {
namespace {

using kernels::Phase;

constexpr int64_t kRowStatistics = 7;
static_assert(sizeof(kernels::RowStatistics) == kRowStatistics * sizeof(uint64_t));

// Returns a decode step's tensors as the kernels take them.
kernels::DecodeInputs inputsOf(const kernels::PagedKv& kv, at::Device device,
                               const at::Tensor& queries, const at::Tensor& page_table,
                               const at::Tensor& lengths, const at::Tensor& budgets,
                               const at::Tensor& sequences, const at::Tensor& steps) {
  kernels::DecodeInputs in;
  in.queries = dataAs<float>(queries, "queries", at::kFloat, device, {-1, -1, kv.head_dim});
  in.rows = asInt(queries.size(0), "rows");
  in.heads = asInt(queries.size(1), "heads");
  in.page_table = dataAs<int32_t>(page_table, "page_table", at::kInt, device, {in.rows, -1});
  in.max_pages = asInt(page_table.size(1), "max_pages");
  in.lengths = dataAs<int32_t>(lengths, "lengths", at::kInt, device, {in.rows});
  in.head_budgets = budgets.defined() && budgets.dim() == 2;
  in.budgets = in.head_budgets ? wordsOf(budgets, "budgets", device, {in.rows, in.heads})
                               : wordsOf(budgets, "budgets", device, {in.rows});
  in.sequences = wordsOf(sequences, "sequences", device, {in.rows});
  in.steps = wordsOf(steps, "steps", device, {in.rows});
  expectHeads(in.heads, kv.kv_heads);
  return in;
}

// Returns the longest length, at most that of the page table: the step refuses longer rows.
// Requires: lengths are on the CPU.
int longestOf(const kernels::DecodeInputs& in, int page_size) {
  const int64_t longest = in.rows > 0 ? *std::max_element(in.lengths, in.lengths + in.rows) : 0;
  return static_cast<int>(std::clamp<int64_t>(longest, 0, int64_t{in.max_pages} * page_size));
}

}  // namespace

float scaleOf(const OptionalDouble& scale, int head_dim) {
  return static_cast<float>(scale ? *scale : 1.0 / std::sqrt(static_cast<double>(head_dim)));
}

void planDecode(int64_t workspace, at::TensorList cache, const std::string& method, int64_t rows,
                int64_t heads, int64_t max_length, int64_t max_budget, bool statistics) {
  const auto [kv, device] = cacheOf(cache);
  const kernels::MethodOptions& options = methodOf(method, Phase::kDecode);
  const auto space = workspaceOf(workspace, device);
  const kernels::cuda::StepBounds bounds{
      .rows = asInt(rows, "rows"),
      .heads = asInt(heads, "heads"),
      .max_length = asInt(max_length, "max_length"),
      .max_budget = static_cast<uint32_t>(asInt(max_budget, "max_budget")),
      .statistics = statistics};
  expectHeads(heads, kv.kv_heads);
  const std::lock_guard lock(space->mutex);
  const c10::DeviceGuard guard(device);
  if (device.is_cuda()) {
    refuseIf(space->cuda_decode.plan(options, kv, bounds));
  } else {
    space->planDecode(bounds.max_length, bounds.heads / kv.kv_heads, kv.head_dim);
  }
}

std::tuple<at::Tensor, at::Tensor> decodeAttention(
    const at::Tensor& queries, at::TensorList cache, const at::Tensor& page_table,
    const at::Tensor& lengths, const at::Tensor& budgets, const at::Tensor& sequences,
    const at::Tensor& steps, const std::string& method, int64_t workspace, int64_t layer,
    int64_t seed, const OptionalDouble& scale, int64_t window, const OptionalTensor& bias,
    const OptionalTensor& zero_budget_values, int64_t zero_budget_window,
    const OptionalTensor& statistics, const OptionalTensor& drawn, bool with_lse) {
  const auto [kv, device] = cacheOf(cache);
  const kernels::MethodOptions& options = methodOf(method, Phase::kDecode);
  kernels::DecodeInputs in =
      inputsOf(kv, device, queries, page_table, lengths, budgets, sequences, steps);
  in.layer = static_cast<uint32_t>(asInt(layer, "layer"));
  in.seed = static_cast<uint64_t>(seed);
  in.scale = scaleOf(scale, kv.head_dim);
  in.window = asInt(window, "window");
  in.zero_budget_window = asInt(zero_budget_window, "zero_budget_window");
  if (bias) {
    in.bias = dataAs<float>(*bias, "bias", at::kFloat, device, {in.rows, -1});
    in.bias_stride = bias->size(1);
  }
  if (zero_budget_values) {
    in.zero_budget_values = dataAs<float>(*zero_budget_values, "zero_budget_values", at::kFloat,
                                          device, {in.rows, kv.kv_heads, kv.head_dim});
  }
  kernels::DecodeOutputs out;
  if (statistics) {
    out.statistics = static_cast<kernels::RowStatistics*>(
        dataOf(*statistics, "statistics", at::kLong, device, {in.rows, kRowStatistics}));
  }
  if (drawn) {
    if (device.is_cuda()) refuse("drawn keys are told by the CPU alone: leave `drawn` out");
    out.value_rows =
        static_cast<uint64_t*>(dataOf(*drawn, "drawn", at::kLong, device, {in.heads, -1}));
    out.value_row_words = asInt(drawn->size(1), "words of drawn");
    if (out.value_row_words <= longestOf(in, kv.page_size) / 64) {
      refuse("drawn has " + std::to_string(out.value_row_words) +
             " words a head, but needs more than the longest length / 64");
    }
  }
  const auto space = workspaceOf(workspace, device);
  const c10::DeviceGuard guard(device);
  const auto like = queries.options().requires_grad(false);
  const at::Tensor result = at::empty({in.rows, in.heads, kv.head_dim}, like);
  out.out = result.data_ptr<float>();
  // For lse a head with budget 0 reads its keys, too.
  const at::Tensor lse = with_lse ? at::empty({in.rows, in.heads}, like) : at::empty({0}, like);
  out.lse = with_lse ? lse.data_ptr<float>() : nullptr;
  if (in.rows == 0) return {result, lse};
  const std::lock_guard lock(space->mutex);
  if (device.is_cuda()) {
    refuseIf(kernels::cuda::decodeAttention(options, kv, in, &space->cuda_decode, out,
                                            currentStream(device)));
  } else {
    space->planDecode(longestOf(in, kv.page_size), in.heads / kv.kv_heads, kv.head_dim);
    refuseIf(kernels::decodeAttention(options, kv, in, &space->decode, out));
  }
  return {result, lse};
}

std::string failureOf(int64_t workspace) {
  const auto space = workspaceOf(workspace);
  if (!space->device.is_cuda()) return "";
  const c10::DeviceGuard guard(space->device);
  const std::lock_guard lock(space->mutex);
  const kernels::cuda::Stream stream = currentStream(space->device);
  if (auto why = space->cuda_decode.failure(stream)) return *why;
  return space->cuda_prefill.failure(stream).value_or("");
}

}  // namespace allot::bindings
