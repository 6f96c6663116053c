// The host's side of appends, means and page copies: checks and launches.
#include <bit>

#include "allot/kernels/cuda_decode.h"
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/append.cuh"
#include "kernels/cuda/workspace.h"

namespace allot::kernels::cuda {

Refusal appendKv(const PagedKv& kv, const AppendInputs& in, Workspace* workspace, Stream stream) {
  MethodOptions any;
  if (auto why = unsupportedShape(any, kv, kv.kv_heads)) return why;
  // An append could write a misaligned cache, but no step could read it.
  if (auto why = misaligned(kv)) return why;
  for (const KeyShadow& shadow : kv.shadows) {
    if (shadow.bits != 0 && shadow.bits != 4) {
      return "the GPU writes 4-bit shadows of keys, not " + std::to_string(shadow.bits) + "-bit";
    }
  }
  if (in.rows == 0 || in.count == 0) return std::nullopt;
  Workspace::Impl& impl = workspace->impl();
  if (auto why = impl.prepare()) return why;
  const KeyShadow* shadow = kv.shadow(4);
  const Append append{.keys = kv.keys,
                      .values = kv.values,
                      .codes = shadow ? shadow->codes : nullptr,
                      .code_scales = shadow ? shadow->scales : nullptr,
                      .mean_keys = kv.mean_keys,
                      .pages = kv.pages,
                      .kv_heads = kv.kv_heads,
                      .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
                      .new_keys = in.keys,
                      .new_values = in.values,
                      .page_table = in.page_table,
                      .starts = in.starts,
                      .rows = in.rows,
                      .count = in.count,
                      .max_pages = in.max_pages,
                      .wrong = impl.wrong.as<unsigned long long>(),
                      .value_sums = kv.value_sums,
                      .bounds = kv.bounds};
  const AppendKernels kernels = appendKernelsOf(kv.head_dim, kv.element);
  const int64_t warps = int64_t{in.rows} * in.count * kv.kv_heads;
  const auto blocks =
      static_cast<unsigned>((warps + kAppendThreads / 32 - 1) / (kAppendThreads / 32));
  const cudaError_t error =
      impl.launchEarly(kernels.append, blocks, kAppendThreads, 0, stream, append);
  if (in.count > 1 && kv.mean_keys) {
    kernels.mean_key<<<static_cast<unsigned>(in.rows * kv.kv_heads), 1024, 0, stream>>>(append);
  }
  if (kv.bounds) {
    const int64_t tiles = int64_t{in.rows} * kv.kv_heads * touchedTiles(in.count);
    const auto tile_blocks =
        static_cast<unsigned>((tiles + kAppendThreads / 32 - 1) / (kAppendThreads / 32));
    kernels.bounds<<<tile_blocks, kAppendThreads, 0, stream>>>(append);
  }
  if (in.count > 1 && shadow) kernels.shadow<<<blocks, kAppendThreads, 0, stream>>>(append);
  if (kv.value_sums) {
    kernels.value_sums<<<static_cast<unsigned>(in.rows * kv.kv_heads),
                         static_cast<unsigned>(kv.head_dim), 0, stream>>>(append);
  }
  const cudaError_t last = cudaGetLastError();  // clears the error, too
  return failed("the GPU did not take the append", error == cudaSuccess ? last : error);
}

Refusal meanValues(const PagedKv& kv, const MeanInputs& in, float* means, Stream stream) {
  MethodOptions any;
  if (auto why = unsupportedShape(any, kv, kv.kv_heads)) return why;
  if (!kv.value_sums) return "the mean of values is asked for, but the cache holds no sums of them";
  if (in.rows == 0) return std::nullopt;
  const AppendKernels kernels = appendKernelsOf(kv.head_dim, kv.element);
  kernels.means<<<static_cast<unsigned>(in.rows * kv.kv_heads), static_cast<unsigned>(kv.head_dim),
                  0, stream>>>({.value_sums = kv.value_sums,
                                .pages = kv.pages,
                                .kv_heads = kv.kv_heads,
                                .page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size)),
                                .page_table = in.page_table,
                                .lengths = in.lengths,
                                .max_pages = in.max_pages,
                                .means = means});
  return failed("the GPU did not take the means", cudaGetLastError());
}

Refusal copyPage(const PagedKv& kv, int64_t from, int64_t to, Stream stream) {
  if (from == to) return std::nullopt;
  cudaError_t error = cudaSuccess;
  const auto copy = [&](void* base, size_t page_bytes) {
    if (!base || error != cudaSuccess) return;
    auto* bytes = static_cast<uint8_t*>(base);
    error = cudaMemcpyAsync(bytes + to * page_bytes, bytes + from * page_bytes, page_bytes,
                            cudaMemcpyDeviceToDevice, stream);
  };
  const size_t positions = static_cast<size_t>(kv.kv_heads) * kv.page_size;
  copy(kv.keys, positions * kv.head_dim * bytesOf(kv.element));
  copy(kv.values, positions * kv.head_dim * bytesOf(kv.element));
  if (const KeyShadow* shadow = kv.shadow(4)) {
    copy(shadow->codes, positions / kTileKeys * shadow->tileBytes(kv.head_dim));
    copy(shadow->scales, positions * sizeof(float));
  }
  copy(kv.bounds, positions / kTileKeys * 2 * kv.head_dim * bytesOf(kv.element));
  copy(kv.mean_keys, static_cast<size_t>(kv.kv_heads) * kv.head_dim * sizeof(float));
  copy(kv.value_sums, static_cast<size_t>(kv.kv_heads) * 2 * kv.head_dim * sizeof(double));
  return failed("the GPU did not copy a page", error);
}

}  // namespace allot::kernels::cuda
