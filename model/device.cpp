#include "model/device.h"

#include <unistd.h>

#include "model/decoder_backend.h"

namespace allot {
namespace {

// What kernels/cuda is made for (cuda_decode.h).
constexpr int64_t kLargestGroup = 16;

}  // namespace

std::optional<std::string> cudaUnsupported(const ModelConfig& config) {
  const int64_t group = config.heads / config.kv_heads;
  if ((config.head_dim == 64 || config.head_dim == 128) && group <= kLargestGroup) return {};
  return "the GPU decodes heads of 64 or 128 channels, at most " + std::to_string(kLargestGroup) +
         " a KV head, not this model's " + std::to_string(config.head_dim) + " and " +
         std::to_string(group);
}

size_t freeMemory(Device device) {
  if (device == Device::kCuda) return freeCudaMemory();
  const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  return static_cast<size_t>(pages) * static_cast<size_t>(page);
}

}  // namespace allot
