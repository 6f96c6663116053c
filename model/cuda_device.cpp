#include "model/cuda_device.h"

#include <cuda_runtime_api.h>

#include "model/decoder_backend.h"
#include "model/device.h"

namespace allot {

std::optional<std::string> cudaUnavailable() { return kernels::cuda::unavailable(); }

size_t freeCudaMemory() {
  size_t free = 0, total = 0;
  if (cudaUnavailable() || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free;
}

std::string cudaDeviceName() {
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return "NVIDIA GPU";
  }
  return properties.name;
}

KvPlace cudaPlace(kernels::cuda::Stream stream,
                  std::shared_ptr<std::optional<std::string>> refusal) {
  KvPlace place;
  place.reserve = [](size_t bytes) -> Result<std::shared_ptr<uint8_t>> {
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    std::shared_ptr<uint8_t> held(static_cast<uint8_t*>(memory),
                                  [](uint8_t* start) { cudaFree(start); });
    if (error == cudaSuccess) error = cudaMemset(memory, 0, bytes);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return held;
    cudaGetLastError();  // forgets it
    return badInput("cannot reserve " + std::to_string(bytes >> 20) +
                    " MiB of the GPU's memory for keys and values (" + cudaGetErrorString(error) +
                    "): lower --kv-memory");
  };
  place.free_bytes = freeCudaMemory;
  place.copy_page = [stream, refusal = std::move(refusal)](const kernels::PagedKv& kv, int64_t from,
                                                           int64_t to) {
    auto why = kernels::cuda::copyPage(kv, from, to, stream);
    if (why && !*refusal) *refusal = std::move(why);
  };
  return place;
}

}  // namespace allot
