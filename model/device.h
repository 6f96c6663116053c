#pragma once
// Where a decoder computes: the CPU or an NVIDIA GPU. Free functions, any thread.
#include <cstddef>
#include <optional>
#include <string>

#include "model/model_config.h"

namespace allot {

enum class Device { kCpu, kCuda };

// Nothing if this build decodes on a GPU and one that it can use is there; else one sentence that
// says why not, with the mend.
std::optional<std::string> cudaUnavailable();

// Nothing if models of this shape decode on the GPU; else one sentence.
std::optional<std::string> cudaUnsupported(const ModelConfig& config);

// Bytes of memory that are free there now; 0 where that cannot be known.
size_t freeMemory(Device device);

}  // namespace allot
