#pragma once
// CudaProbe: what a probe is told and may ask of one layer of a step on a GPU (Decoder). It has a
// workspace of its own, so that the step's stays as it is. One thread. Private to the backend.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "worker/model/cuda_model.h"
#include "worker/model/decoder.h"

namespace allot {

class CudaProbe {
 public:
  using Refusal = std::optional<std::string>;

  explicit CudaProbe(CudaModel* model) : model_(*model) {}

  // Calls batch.probe for a layer whose attention is on the stream; waits for that.
  [[nodiscard]] Refusal call(const StepBatch& batch, int64_t layer);

  // As Decoder's.
  [[nodiscard]] Refusal attendAgain(const kernels::MethodOptions& method,
                                    const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                    const kernels::DecodeOutputs& out);
  [[nodiscard]] Refusal tileSums(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                 uint32_t tile, std::vector<std::vector<double>>* masses);
  [[nodiscard]] Refusal rowOnHost(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                  int row, HostRow* held);

 private:
  // `in` with copies on the device in place of what is on the host; `held` keeps them.
  kernels::DecodeInputs onDevice(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                 std::vector<at::Tensor>* held) const;
  Refusal waited() const;

  CudaModel& model_;
  kernels::cuda::Workspace workspace_;
  // Of the layer, on the host.
  std::vector<float> queries_, attended_, zero_budget_values_;
  std::vector<uint32_t> budgets_;
};

}  // namespace allot
