#include "kernels/cuda/device.h"

#include <string_view>
#include <utility>

#include "kernels/cuda/launch.h"

namespace allot::kernels::cuda {
namespace {

// Refuses a device for which the build has neither machine code nor PTX that the driver compiles.
Refusal noCode(const Device& device) {
  cudaFuncAttributes attributes;
  const AppendKernel kernel = appendKernelsOf(64, Element::kBFloat16).append;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) return std::nullopt;
  cudaGetLastError();
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
      error != cudaErrorUnsupportedPtxVersion) {
    return failed("the GPU did not load the kernels", error);
  }
  const std::string number = std::to_string(device.major) + std::to_string(device.minor);
  return "this build has no code for the GPU's compute capability " + std::to_string(device.major) +
         "." + std::to_string(device.minor) + " (it has " + ALLOT_CUDA_ARCHITECTURES +
         "): build with -DCMAKE_CUDA_ARCHITECTURES=" + number;
}

}  // namespace

Refusal findDevice(Device* device) {
  int index = 0;
  if (auto why = failed("no GPU is usable", cudaGetDevice(&index))) return why;
  const std::pair<cudaDeviceAttr, int*> attributes[] = {
      {cudaDevAttrComputeCapabilityMajor, &device->major},
      {cudaDevAttrComputeCapabilityMinor, &device->minor},
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_bytes}};
  for (const auto& [attribute, value] : attributes) {
    const cudaError_t error = cudaDeviceGetAttribute(value, attribute, index);
    if (auto why = failed("the GPU does not answer", error)) return why;
  }
  device->shared_bytes -= kDeclaredBytes;
  device->is_hopper =
      device->major == 9 &&
      std::string_view(ALLOT_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
  if (device->major < 8) {
    return "the GPU has compute capability " + std::to_string(device->major) + "." +
           std::to_string(device->minor) + ", the kernels need 8.0 (Ampere) or later";
  }
  return noCode(*device);
}

}  // namespace allot::kernels::cuda
