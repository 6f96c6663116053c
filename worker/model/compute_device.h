#pragma once
// The device that a decoder computes on: the CPU or an NVIDIA GPU. Free functions, any thread.
#include <cstddef>
#include <optional>
#include <string>

#include "core/result.h"
#include "worker/model/model_config.h"

namespace allot {

enum class Device { kCpu, kCuda };

// The type of weights, and of inputs and outputs of their products. kBFloat16 only on a GPU.
enum class WeightType { kFloat32, kBFloat16 };

// Returns nothing if this build decodes on a GPU and a usable one is there. Else returns one
// sentence with the reason and the remedy.
std::optional<std::string> cudaUnavailable();

// Returns what decides the bits of a model's outputs on the CPU, beside the build: the instruction
// set of the kernels, and the BLAS with the code that it chose, as in "x86-64-v4, OpenBLAS SkylakeX
// with 1 thread". Equal texts and builds give equal bits, unless the text has "another BLAS".
std::string cpuArithmetic();

// Returns the number of GPUs that this process sees (CUDA_VISIBLE_DEVICES limits it); 0 if none can
// be used.
unsigned cudaDevices();

// Returns nothing if the GPU's kernels have the model's head size and group; else one sentence.
std::optional<std::string> cudaUnsupported(const ModelConfig& config);

// Returns the bytes of the device's memory that this process may still use; 0 if unknown. On the
// CPU that is the memory available without swapping, within the limit of a cgroup v2.
size_t freeMemory(Device device);

// Returns the bytes of the weight matrices on the device, in all layouts, without norms and biases.
size_t weightBytes(const ModelConfig& config, Device device, WeightType type);

// Returns kUsage if the model's weights need more memory than the device is known to have free.
Status checkWeightsFit(const ModelConfig& config, Device device, WeightType type);

}  // namespace allot
