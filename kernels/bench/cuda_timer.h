#pragma once
// Time on the GPU: what one replay of a captured graph takes, and what memory gives. One thread.
#include <functional>
#include <optional>
#include <string>

#include "kernels/bench/cuda_memory.h"
#include "kernels/bench/cuda_plan.h"

namespace allot::bench {

class CudaTimer {
 public:
  CudaTimer(int warm_up, int samples, cudaStream_t stream);
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  // Captures what `launch` launches and times its replays, `prepare` before each of them and
  // outside of the time. Returns what `launch` refused, or why it cannot be captured.
  using Launch = std::function<std::optional<std::string>()>;
  [[nodiscard]] std::optional<std::string> time(const Launch& launch,
                                                const std::function<void()>& prepare,
                                                Timing* timing);

  // From now on so much other memory is read before each step; 0: none.
  void flush(size_t bytes);

  // GB/s of a copy within the device, bytes read and written; and of reading alone.
  double copyBandwidth();
  double readBandwidth();

 private:
  // What `work` takes on the stream, once and many times.
  double once(const std::function<void()>& work, const std::function<void()>& prepare);
  Timing repeat(const std::function<void()>& work, const std::function<void()>& prepare);

  int warm_up_, samples_;
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  DeviceMemory flushed_, sum_;
  size_t flush_bytes_ = 0;
};

}  // namespace allot::bench
