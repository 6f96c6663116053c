// Replaces the GPU's half of worker/model/ in a build without nvcc or CUDA in LibTorch: there is no
// GPU.
#include "worker/model/compute_device.h"
#include "worker/model/decoder_backend.h"

namespace allot {

std::optional<std::string> cudaUnavailable() {
  return "this build decodes on the CPU alone: build it where there are nvcc and a LibTorch with "
         "CUDA (preset cuda)";
}

unsigned cudaDevices() { return 0; }

Result<std::unique_ptr<DecoderBackend>> makeCudaBackend(const ModelConfig&, const std::string&,
                                                        WeightType, const KvPoolOptions&,
                                                        Weights*) {
  return badInput(*cudaUnavailable());
}

size_t freeCudaMemory() { return 0; }

}  // namespace allot
