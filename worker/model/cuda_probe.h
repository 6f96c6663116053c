#pragma once
// CudaProbe: calls an AttentionProbe for one layer of a step on a GPU, and runs Decoder's functions
// for probes. Has a workspace of its own. One thread. Private to the backend.
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

  // Waits for the layer's attention on the stream, then calls batch.probe. An error is a sentence.
  [[nodiscard]] Refusal call(const StepBatch& batch, int64_t layer);

  // Do what Decoder's functions of these names do.
  [[nodiscard]] Refusal attendAgain(const kernels::MethodOptions& method,
                                    const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                    const kernels::DecodeOutputs& out);
  [[nodiscard]] Refusal tileSums(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                 uint32_t tile, std::vector<std::vector<double>>* masses);
  [[nodiscard]] Refusal rowOnHost(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                  int row, HostRow* held);

 private:
  // Returns `in` with host arrays replaced by copies on the device, which `held` owns.
  kernels::DecodeInputs onDevice(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                 std::vector<at::Tensor>* held) const;
  Refusal waited() const;

  CudaModel& model_;
  kernels::cuda::Workspace workspace_;
  // Arrays of the probed layer, on the host.
  std::vector<float> queries_, attended_, zero_budget_values_;
  std::vector<uint32_t> budgets_;
};

}  // namespace allot
