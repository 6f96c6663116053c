#pragma once
// Buffer, device memory that grows, and the text of a CUDA error. Private to kernels/cuda. A
// workspace owns its buffers; host, one caller at a time.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

namespace allot::kernels::cuda {

using Refusal = std::optional<std::string>;

// Returns `what` and the text of the error; nothing on cudaSuccess.
inline Refusal failed(const std::string& what, cudaError_t error) {
  if (error == cudaSuccess) return std::nullopt;
  return what + ": " + cudaGetErrorString(error);
}

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  // Makes room for `bytes`. Growing waits for the device and loses the contents. Refuses what the
  // GPU has no room for; the buffer is then empty.
  Refusal grow(size_t bytes) {
    if (bytes <= bytes_) return std::nullopt;
    ++moves_;
    cudaDeviceSynchronize();
    cudaFree(data_);
    data_ = nullptr;
    bytes_ = 0;
    if (cudaMalloc(&data_, bytes) != cudaSuccess) {
      cudaGetLastError();
      data_ = nullptr;
      return "the GPU has no " + std::to_string((bytes >> 20) + 1) +
             " MiB left for the attention's workspace: lower the rows of a batch or the memory for "
             "keys and values";
    }
    bytes_ = bytes;
    return std::nullopt;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  uint64_t moves() const { return moves_; }  // how often it grew, or tried to

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t moves_ = 0;
};

}  // namespace allot::kernels::cuda
