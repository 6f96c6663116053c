#pragma once
// Device memory of a test, with guard words before and behind it: a kernel that writes beyond its
// array fails the test.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace allot::kernels {

#define ALLOT_CUDA_OK(call) ASSERT_EQ(cudaSuccess, call) << cudaGetErrorString(cudaGetLastError())

// Plain elements. Copies wait for every stream.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t count) { allocate(count); }
  explicit DeviceArray(const std::vector<T>& host) { assign(host); }
  ~DeviceArray() { free(); }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(count_, other.count_);
    return *this;
  }

  T* get() const { return memory_ ? reinterpret_cast<T*>(memory_ + kGuard) : nullptr; }
  size_t size() const { return count_; }

  // The address stays where the size does, so that captured graphs see what is new.
  void assign(const std::vector<T>& host) {
    if (host.size() != count_ || !memory_) {
      free();
      allocate(host.size());
    }
    copy(get(), host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  std::vector<T> host() const {
    std::vector<T> list(count_);
    copy(list.data(), get(), count_ * sizeof(T), cudaMemcpyDeviceToHost);
    return list;
  }
  void expectGuards() const {
    if (!memory_) return;
    uint8_t guard[2 * kGuard] = {};
    copy(guard, memory_, kGuard, cudaMemcpyDeviceToHost);
    copy(guard + kGuard, memory_ + kGuard + count_ * sizeof(T), kGuard, cudaMemcpyDeviceToHost);
    EXPECT_TRUE(std::all_of(guard, guard + kGuard, [](uint8_t x) { return x == kPattern; }))
        << "written before its beginning";
    EXPECT_TRUE(std::all_of(guard + kGuard, guard + 2 * kGuard, [](uint8_t x) {
      return x == kPattern;
    })) << "written beyond its end";
  }

 private:
  // As aligned as cudaMalloc's memory is.
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kPattern = 0xcd;

  // Tests work in streams that do not wait for the default one.
  static void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    ALLOT_CUDA_OK(cudaDeviceSynchronize());
    ALLOT_CUDA_OK(cudaMemcpy(to, from, bytes, kind));
    ALLOT_CUDA_OK(cudaDeviceSynchronize());
  }
  void allocate(size_t count) {
    const auto made =
        cudaMalloc(reinterpret_cast<void**>(&memory_), count * sizeof(T) + 2 * kGuard);
    // Ends the test: a kernel that is given null would fail those after it, too.
    if (made != cudaSuccess) throw std::runtime_error(cudaGetErrorString(cudaGetLastError()));
    count_ = count;
    ALLOT_CUDA_OK(cudaMemset(memory_, kPattern, count * sizeof(T) + 2 * kGuard));
    ALLOT_CUDA_OK(cudaDeviceSynchronize());
  }
  void free() {
    expectGuards();
    cudaFree(memory_);
    memory_ = nullptr;
    count_ = 0;
  }

  uint8_t* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace allot::kernels
