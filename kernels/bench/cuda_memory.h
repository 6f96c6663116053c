#pragma once
// Device memory of allot-bench's GPU part. need(), upload() and download() end the program on an
// error of CUDA. Owned by one thread.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace allot::bench {

// Ends the program with CUDA's message unless `error` is cudaSuccess.
inline void must(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "allot-bench: %s: %s\n", doing, cudaGetErrorString(error));
  std::exit(70);
}

// Owns one allocation of device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceMemory() { cudaFree(data_); }

  // Replaces the memory. Returns false if there is too little.
  [[nodiscard]] bool allocate(size_t bytes) {
    cudaFree(std::exchange(data_, nullptr));
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return true;
    data_ = nullptr;
    cudaGetLastError();  // clears the error
    return false;
  }
  // Allocates memory, or ends the program if there is too little.
  void need(size_t bytes) {
    if (!allocate(bytes)) must(cudaErrorMemoryAllocation, "taking device memory");
  }
  template <typename T>
  void upload(const std::vector<T>& from) {
    need(from.size() * sizeof(T));
    must(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
         "copying to the device");
    // The copy may still run, and non-blocking streams would not wait for it.
    must(cudaDeviceSynchronize(), "copying to the device");
  }
  template <typename T>
  std::vector<T> download(size_t count) const {
    std::vector<T> to(count);
    must(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost),
         "copying from the device");
    return to;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace allot::bench
