#pragma once
// DecoderBackend: what differs between a decoder on the CPU and one on a GPU. Private to
// worker/model/.
//
// Owns weights and pool. Decoder checks prompts and gives out their pages. One thread.
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

  // Runs the prompt, writes its keys and values to `pages` of the pool, returns the logits after
  // its last token, [vocab]. All of `statistics` but the seconds of the whole.
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

  // As Decoder's, while a probe is called.
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
  bool measure_sampling = false;
};

Result<std::unique_ptr<DecoderBackend>> makeCpuBackend(const ModelConfig& config, Weights weights,
                                                       const KvPoolOptions& options);
// kUsage where cudaUnavailable() or cudaUnsupported() says something, and where the GPU's memory is
// too small. Reads the weights of `path`; what is said of them (parameters, digest) is put into
// `read`, whose tensors stay empty.
Result<std::unique_ptr<DecoderBackend>> makeCudaBackend(const ModelConfig& config,
                                                        const std::string& path, WeightType type,
                                                        const KvPoolOptions& options,
                                                        Weights* read);
// What a prefill ends with when the memory for its activations is not there.
tl::unexpected<Error> noRoomForPrompt(size_t tokens, const std::string& memory);
// 0 where there is no GPU.
size_t freeCudaMemory();

}  // namespace allot
