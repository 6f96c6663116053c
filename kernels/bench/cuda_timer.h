#pragma once
// Times on the GPU: replays of a captured graph, and memory bandwidth. Owned by one thread.
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

  // Captures the launches of `launch` and times their replays. `prepare` runs before each replay
  // and is not timed. Returns nothing, the refusal of `launch`, or why capturing failed.
  using Launch = std::function<std::optional<std::string>()>;
  [[nodiscard]] std::optional<std::string> time(const Launch& launch,
                                                const std::function<void()>& prepare,
                                                Timing* timing);

  // Sets how many bytes of other memory are read before each run; 0: none.
  void flush(size_t bytes);

  // Return GB/s of a copy within the device (bytes read and written), and of reading alone.
  double copyBandwidth();
  double readBandwidth();

 private:
  // Return the milliseconds of one run of `work` on the stream, and the figures of all samples.
  double once(const std::function<void()>& work, const std::function<void()>& prepare);
  Timing repeat(const std::function<void()>& work, const std::function<void()>& prepare);

  int warm_up_, samples_;
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  DeviceMemory flushed_, sum_;
  size_t flush_bytes_ = 0;
};

}  // namespace allot::bench
