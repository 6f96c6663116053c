#pragma once
// CudaPrompt: attention of a prompt on a GPU by the kernels' prefill, the counterpart of
// cpu_prefill.cpp. One thread. Private to worker/model/.
#include <ATen/core/Tensor.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "allot/kernels/cuda_prefill.h"
#include "core/result.h"
#include "worker/model/cuda_model.h"
#include "worker/model/decoder.h"

namespace allot {

// The most positions that are computed at once. The CPU's kChunk is equal, since a selection covers
// one chunk.
constexpr int64_t kPromptChunk = 4096;

// Adds the counts of dense attention in one layer, for the positions first .. first + count - 1.
void addDenseReads(const ModelConfig& config, int64_t first, int64_t count,
                   kernels::PrefillStatistics* statistics);

class CudaPrompt {
 public:
  explicit CudaPrompt(CudaModel* model);
  ~CudaPrompt();
  CudaPrompt(const CudaPrompt&) = delete;
  CudaPrompt& operator=(const CudaPrompt&) = delete;

  // Returns false for a dense prompt that LibTorch has to attend to: with float32 weights, whose
  // queries must not be rounded, over a cache without a kernel, and on other GPUs than Hopper,
  // where the kernels were not measured beside LibTorch's.
  bool reads(const kernels::MethodOptions& method) const;
  // Starts a prompt of `positions`. `reading` and `statistics` are borrowed until finish(). kData
  // if the workspace cannot be planned.
  Status begin(const PromptReading& reading, int64_t positions, PromptStatistics* statistics);
  // Return how many positions to compute at once, and the type of their queries.
  // Requires: begin().
  int64_t chunk() const { return chunk_; }
  at::ScalarType queryType() const;
  // Returns the outputs of the positions from `first` on, [.., heads * head_dim], in the weights'
  // type. Waits for the stream unless the prompt is dense. queries: [count, heads, head_dim], of
  // queryType(), at positions from `start` on; pages: the prompt's, on the device. Requires: keys
  // and values of the queries' positions are in the cache.
  Result<at::Tensor> attend(const at::Tensor& queries, const at::Tensor& pages, int64_t start,
                            int64_t first, int64_t layer);
  // Adds the reads, which were counted on the device, to the statistics. Those of dense prompts are
  // not: addDenseReads() has them. kData if a dense prompt failed on the device.
  Status finish();

 private:
  using Refusal = std::optional<std::string>;

  // The chunk `in` of a prompt: selects its blocks, and attends with the queries from position
  // `wanted` on. queries: at positions from `start` on; out begins with position `wanted`.
  Refusal attendChunk(const kernels::PagedKv& kv, kernels::PrefillInputs in,
                      const at::Tensor& queries, int64_t start, int64_t wanted,
                      const at::Tensor& out);
  kernels::PrefillStatistics* counts() const {
    return static_cast<kernels::PrefillStatistics*>(read_.data_ptr());
  }
  Refusal select(const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                 kernels::cuda::KeyBits* list);
  // Adds each query's share of exact attention on its blocks, whose lse is kept, [count, heads].
  Refusal addKeptMass(const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                      const at::Tensor& kept);

  CudaModel& model_;
  kernels::cuda::PrefillWorkspace workspace_;
  const PromptReading* reading_ = nullptr;
  PromptStatistics* statistics_ = nullptr;
  int64_t chunk_ = kPromptChunk;
  bool dense_ = false;  // the prompt is read whole
  at::Tensor read_;     // PrefillStatistics, on the device
  at::Tensor tau_;      // [heads], of the layer
  cudaEvent_t select_begin_ = nullptr, select_end_ = nullptr;
};

}  // namespace allot
