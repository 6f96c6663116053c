#include "python/operators/operators.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "python/operators/workspaces.h"

namespace allot::bindings {

std::vector<at::Tensor> makeCache(int64_t pages, int64_t kv_heads, int64_t page_size,
                                  int64_t head_dim, c10::optional<at::ScalarType> dtype,
                                  c10::optional<at::Device> device, int64_t shadow_bits,
                                  bool bounds, bool value_sums) {
  for (const auto& [value, name] :
       {std::pair{pages, "pages"}, {kv_heads, "kv_heads"}, {page_size, "page_size"}}) {
    if (asInt(value, name) == 0) refuse(std::string(name) + " = 0: a cache has one at least");
  }
  if (head_dim < 16 || head_dim > 1024 || head_dim % 16 != 0) {
    refuse("head_dim = " + std::to_string(head_dim) + " is no multiple of 16 up to 1024");
  }
  if (shadow_bits != 0 && shadow_bits != 3 && shadow_bits != 4 && shadow_bits != 8) {
    refuse("shadow_bits = " + std::to_string(shadow_bits) +
           ": shadows of keys have 3, 4 or 8 bits, and 0 is none");
  }
  if (shadow_bits != 0 || bounds) expectWholeTiles(page_size);
  const at::ScalarType type = dtype.value_or(at::kFloat);
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) {
    refuse("a cache is float32, bfloat16 or float16");
  }
  const at::TensorOptions place = at::TensorOptions().device(device.value_or(at::kCPU));
  const int64_t tiles = page_size / kernels::kTileKeys;
  const std::string none = "there is no memory for a cache of " + std::to_string(pages) +
                           " pages of " + std::to_string(page_size) + " keys in " +
                           std::to_string(kv_heads) + " KV heads";
  // No process has addresses for 2^45 elements, and larger sizes might overflow.
  if (std::log2(pages) + std::log2(kv_heads) + std::log2(page_size * head_dim) > 45) refuse(none);
  const auto zeros = [&](bool wanted, std::vector<int64_t> sizes, at::ScalarType of) {
    try {
      return at::zeros(wanted ? sizes : std::vector<int64_t>{0}, place.dtype(of));
    } catch (const c10::Error&) {
      if (!place.device().is_cpu()) throw;  // PyTorch says how full a GPU is
      refuse(none);
    }
  };
  const bool shadow = shadow_bits > 0;
  return {zeros(true, {pages, kv_heads, page_size, head_dim}, type),
          zeros(true, {pages, kv_heads, page_size, head_dim}, type),
          zeros(shadow, {pages, kv_heads, tiles, 2 * head_dim * shadow_bits}, at::kByte),
          zeros(shadow, {pages, kv_heads, page_size}, at::kFloat),
          zeros(shadow, {pages, kv_heads, head_dim}, at::kFloat),
          zeros(bounds, {pages, kv_heads, tiles, 2, head_dim}, type),
          zeros(value_sums, {pages, kv_heads, 2, head_dim}, at::kDouble)};
}

void appendKv(const at::Tensor& keys, const at::Tensor& values, at::TensorList cache,
              const at::Tensor& page_table, const at::Tensor& starts, int64_t workspace) {
  const auto [kv, device] = cacheOf(cache);
  kernels::AppendInputs in;
  in.keys = dataAs<float>(keys, "keys", at::kFloat, device, {-1, -1, kv.kv_heads, kv.head_dim});
  in.rows = asInt(keys.size(0), "rows");
  in.count = asInt(keys.size(1), "count");
  in.values = dataAs<float>(values, "values", at::kFloat, device,
                            {in.rows, in.count, kv.kv_heads, kv.head_dim});
  in.page_table = dataAs<int32_t>(page_table, "page_table", at::kInt, device, {in.rows, -1});
  in.max_pages = asInt(page_table.size(1), "max_pages");
  in.starts = dataAs<int32_t>(starts, "starts", at::kInt, device, {in.rows});
  const auto space = workspaceOf(workspace, device);
  if (in.rows == 0 || in.count == 0) return;
  const c10::DeviceGuard guard(device);
  if (device.is_cuda()) {
    const std::lock_guard lock(space->mutex);
    refuseIf(kernels::cuda::appendKv(kv, in, &space->cuda_decode, currentStream(device)));
  } else {
    refuseIf(kernels::appendKv(kv, in));
  }
}

at::Tensor meanValues(at::TensorList cache, const at::Tensor& page_table,
                      const at::Tensor& lengths) {
  const auto [kv, device] = cacheOf(cache);
  if (!kv.value_sums) {
    refuse("the cache holds no sums of values: make it with value_sums=True");
  }
  kernels::MeanInputs in;
  in.page_table = dataAs<int32_t>(page_table, "page_table", at::kInt, device, {-1, -1});
  in.rows = asInt(page_table.size(0), "rows");
  in.max_pages = asInt(page_table.size(1), "max_pages");
  in.lengths = dataAs<int32_t>(lengths, "lengths", at::kInt, device, {in.rows});
  const c10::DeviceGuard guard(device);
  const at::Tensor means =
      at::zeros({in.rows, kv.kv_heads, kv.head_dim}, cache[0].options().dtype(at::kFloat));
  if (device.is_cuda()) {
    refuseIf(kernels::cuda::meanValues(kv, in, means.data_ptr<float>(), currentStream(device)));
    return means;
  }
  // kernels::meanValues() checks neither lengths nor pages.
  for (int row = 0; row < in.rows; ++row) {
    const int64_t length = in.lengths[row];
    const int64_t page = length > 0 ? (length - 1) / kv.page_size : 0;
    const bool held = length >= 0 && length <= int64_t{in.max_pages} * kv.page_size;
    const int32_t at = held && length > 0 ? in.page_table[row * int64_t{in.max_pages} + page] : 0;
    if (!held || (length > 0 && (at < 0 || at >= kv.pages))) {
      refuse("lengths[" + std::to_string(row) + "] = " + std::to_string(length) +
             " is beyond the page table or the pool");
    }
  }
  kernels::meanValues(kv, in, means.data_ptr<float>());
  return means;
}

}  // namespace allot::bindings
