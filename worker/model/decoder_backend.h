#pragma once
// DecoderBackend: the device-specific part of a decoder, with an implementation for the CPU and one
// for a GPU. Private to worker/model/.
//
// Owns weights and pool. Decoder checks the inputs and allocates pages of prompts. One thread.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/weights.h"

namespace allot {

class DecoderBackend {
 public:
  virtual ~DecoderBackend() = default;

  virtual std::string deviceName() const = 0;
  virtual size_t weightBytes() const = 0;
  virtual KvPool& pool() = 0;

  // Runs the prompt, writes its keys and values to `pages` of the pool, and returns the logits
  // after its last token, [vocab]. Adds to `statistics`, except to `seconds`.
  virtual Result<std::vector<float>> prefill(const std::vector<int32_t>& ids,
                                             const std::vector<int32_t>& pages,
                                             const PromptReading& reading,
                                             PromptStatistics* statistics) = 0;
  // As Decoder::step().
  virtual Result<std::span<const float>> step(const StepBatch& batch,
                                              std::vector<kernels::RowStatistics>* statistics) = 0;

  // As Decoder::stepAndChoose().
  virtual Result<std::span<const int32_t>> stepAndChoose(
      const StepBatch& batch, const TokenChoice& choice, const std::vector<uint32_t>& places,
      std::vector<kernels::RowStatistics>* statistics) = 0;

  // Do what Decoder's functions of these names do.
  virtual std::optional<std::string> attendAgain(const kernels::MethodOptions& method,
                                                 const kernels::PagedKv& kv,
                                                 const kernels::DecodeInputs& in,
                                                 const kernels::DecodeOutputs& out) = 0;
  virtual std::optional<std::string> tileSums(const kernels::PagedKv& kv,
                                              const kernels::DecodeInputs& in, uint32_t tile,
                                              std::vector<std::vector<double>>* masses) = 0;
  virtual std::optional<std::string> rowOnHost(const kernels::PagedKv& kv,
                                               const kernels::DecodeInputs& in, int row,
                                               HostRow* held) = 0;

  Decoder::Times times;
  uint64_t saturated_numbers = 0;  // kernels::AppendInputs::saturated
  bool measure_sampling = false;
};

// Sets LibTorch and OpenBLAS to one thread in the whole process. Errors: those of KvPool::create().
Result<std::unique_ptr<DecoderBackend>> makeCpuBackend(const ModelConfig& config, Weights weights,
                                                       const KvPoolOptions& options);
// Reads the weights of `path` onto the GPU; `read` gets the tensors outside the layers. kUsage: the
// text of cudaUnavailable() or cudaUnsupported(), an option that a GPU lacks, or too little GPU
// memory; errors of Weights::loadByLayer().
Result<std::unique_ptr<DecoderBackend>> makeCudaBackend(const ModelConfig& config,
                                                        const std::string& path, WeightType type,
                                                        const KvPoolOptions& options,
                                                        Weights* read);
// Returns the error of a prefill whose activations do not fit `memory`.
tl::unexpected<Error> noRoomForPrompt(size_t tokens, const std::string& memory);
// Returns the free bytes of the current GPU; 0 if there is none.
size_t freeCudaMemory();

}  // namespace allot
