// Launches of Hopper's attention: tensor maps of the pools, and the order of the work.
#include <cudaTypedefs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/prefill_hopper_skip.cuh"

namespace allot::kernels::cuda {
namespace {

using Encoder = PFN_cuTensorMapEncodeTiled_v12000;

// Finds the driver's encoder of tensor maps; the library is not linked to.
Encoder findEncoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  constexpr const char* kName = "cuTensorMapEncodeTiled";
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(kName, &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encoder>(found);
}

constexpr int kMostBoxShift = 6;  // a block of a list has 64 keys

// A tensor of bfloat16 numbers, its fastest dimension first, and the box that a copy takes.
struct Tensor {
  const char* name;
  const void* data;
  std::vector<cuuint64_t> sizes, strides;  // strides: in bytes, from the second dimension on
  std::vector<cuuint32_t> box;
};

// Describes the tensor to the copy engine.
Refusal describe(const Tensor& tensor, CUtensorMap* map) {
  static const Encoder encode = findEncoder();
  if (!encode) return "the driver has no tensor maps: CUDA 12.0's driver or a later one is needed";
  const std::vector<cuuint32_t> steps(tensor.sizes.size(), 1);
  const CUresult result = encode(
      map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(tensor.sizes.size()),
      const_cast<void*>(tensor.data), tensor.sizes.data(), tensor.strides.data(), tensor.box.data(),
      steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return std::nullopt;
  return "the driver refused the tensor map of " + std::string(tensor.name) + ": CUresult " +
         std::to_string(result);
}

// Describes the queries and the pools, whose boxes are what HopperShared says.
Refusal describe(const PromptChunk& chunk, const void* queries, int head_dim, HopperChunk* work) {
  if (chunk.pages == 0) return "the cache has no pages: its pool needs those of the page table";
  const cuuint64_t d = head_dim, page = cuuint64_t{1} << chunk.page_shift, bytes = sizeof(Cached);
  const auto heads = static_cast<cuuint64_t>(chunk.heads),
             tables =
                 static_cast<cuuint64_t>(chunk.pages) * static_cast<cuuint64_t>(chunk.kv_heads);
  const cuuint32_t rows = 1u << work->box_shift, columns = static_cast<cuuint32_t>(head_dim / 64);
  const Tensor tensors[] = {
      {"queries",
       queries,
       {d, heads, static_cast<cuuint64_t>(chunk.count)},
       {d * bytes, heads * d * bytes},
       {64, 1, kQueryBlock}},
      {"keys", chunk.keys, {d, page, tables}, {d * bytes, page * d * bytes}, {64, rows, 1}},
      {"values",
       chunk.values,
       {64, 16, columns, page / 16, tables},
       {d * bytes, 64 * bytes, 16 * d * bytes, page * d * bytes},
       {64, 16, columns, rows / 16, 1}}};
  CUtensorMap* const maps[] = {&work->queries, &work->keys, &work->values};
  for (int i = 0; i < 3; ++i) {
    if (auto why = describe(tensors[i], maps[i])) return why;
  }
  return std::nullopt;
}

// Returns how many heads come together, in whole groups: the keys and values of their KV heads
// should stay in L2.
int sectionOf(const PromptChunk& chunk, int head_dim) {
  constexpr int64_t kKept = 32 << 20;  // of an L2 of 50 MB
  const int group = chunk.heads / chunk.kv_heads;
  const int64_t one = int64_t{chunk.first + chunk.count} * head_dim * 2 * sizeof(Cached);
  const auto kv_heads = static_cast<int>(std::clamp<int64_t>(kKept / one, 1, chunk.kv_heads));
  return group * kv_heads;
}

template <int D>
cudaError_t launch(const HopperChunk& work, bool skips, int blocks, cudaStream_t stream) {
  const size_t bytes = skips ? sizeof(HopperSkipShared<D>) : sizeof(HopperShared<D>);
  const auto kernel = skips ? attendSkippingOnHopper<D> : attendHopper<D>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), 384, bytes, stream>>>(work);
  return cudaGetLastError();
}

__global__ void roundAll(const float4* from, uint2* to, int64_t fours) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= fours) return;
  const float4 x = __ldg(from + at);
  to[at] = {pairOf(x.x, x.y), pairOf(x.z, x.w)};
}

}  // namespace

cudaError_t roundQueries(const PromptChunk& chunk, int head_dim, void* rounded,
                         cudaStream_t stream) {
  const int64_t fours = int64_t{chunk.count} * chunk.heads * head_dim / 4;
  roundAll<<<static_cast<unsigned>((fours + 255) / 256), 256, 0, stream>>>(
      reinterpret_cast<const float4*>(chunk.queries), static_cast<uint2*>(rounded), fours);
  return cudaGetLastError();
}

Refusal launchHopper(const PromptChunk& chunk, const void* queries, int head_dim, bool skips,
                     int multiprocessors, unsigned* tickets, cudaStream_t stream) {
  HopperChunk work;
  work.chunk = chunk;
  work.box_shift = std::min(chunk.page_shift, kMostBoxShift);
  if (auto why = describe(chunk, queries, head_dim, &work)) return why;
  work.first_block = chunk.first / kHopperQueries;
  work.blocks = (chunk.first + chunk.count - 1) / kHopperQueries - work.first_block + 1;
  work.section = sectionOf(chunk, head_dim);
  work.takes_turns = !chunk.bits && !skips;
  work.tickets = tickets;
  const int blocks = std::min(multiprocessors, chunk.heads * work.blocks);
  return failed("the GPU did not take the chunk", head_dim == 64
                                                      ? launch<64>(work, skips, blocks, stream)
                                                      : launch<128>(work, skips, blocks, stream));
}

}  // namespace allot::kernels::cuda
