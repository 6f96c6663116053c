#pragma once
// Where a decoder computes: the CPU or an NVIDIA GPU. Free functions, any thread.
#include <cstddef>
#include <optional>
#include <string>

#include "core/result.h"
#include "worker/model/model_config.h"

namespace allot {

enum class Device { kCpu, kCuda };

// Of weights and of what goes into and out of their products; bfloat16 on a GPU alone.
enum class WeightType { kFloat32, kBFloat16 };

// Nothing if this build decodes on a GPU and one that it can use is there; else one sentence that
// says why not, with the mend.
std::optional<std::string> cudaUnavailable();

// GPUs that this process sees (CUDA_VISIBLE_DEVICES says which they may be); 0 where none can be
// used.
unsigned cudaDevices();

// Nothing if models of this shape decode on the GPU; else one sentence.
std::optional<std::string> cudaUnsupported(const ModelConfig& config);

// Bytes of memory that this process may still take there: on the CPU what the system has to give
// without swapping, and no more than is left of the control group's limit (a container's). 0 where
// that cannot be known.
size_t freeMemory(Device device);

// What the matrices of such a model's weights take there, in all layouts; norms are little beside
// them.
size_t weightBytes(const ModelConfig& config, Device device, WeightType type);

// kUsage where the model's weights are more than the memory that is free there.
Status checkWeightsFit(const ModelConfig& config, Device device, WeightType type);

}  // namespace allot
