#include "kernels/bench/cuda_timer.h"

#include "kernels/bench/cuda_fill.h"

namespace allot::bench {
namespace {

// Longer than the host takes to queue an event and a replay.
constexpr int kDelayMicroseconds = 40;
constexpr size_t kBandwidthBytes = size_t{4} << 30;

}  // namespace

CudaTimer::CudaTimer(int warm_up, int samples, cudaStream_t stream)
    : warm_up_(warm_up), samples_(samples), stream_(stream) {
  must(cudaEventCreate(&begin_), "making an event");
  must(cudaEventCreate(&end_), "making an event");
  sum_.need(sizeof(uint32_t));
}

CudaTimer::~CudaTimer() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void CudaTimer::flush(size_t bytes) {
  flush_bytes_ = bytes;
  if (bytes == 0) {
    flushed_ = {};
    return;
  }
  flushed_.need(bytes);
  must(cudaMemsetAsync(flushed_.as<void>(), 0, bytes, stream_), "clearing memory");
}

double CudaTimer::once(const std::function<void()>& work, const std::function<void()>& prepare) {
  if (flush_bytes_ > 0) readAll(flushed_.as<void>(), flush_bytes_, sum_.as<uint32_t>(), stream_);
  prepare();
  delay(kDelayMicroseconds, stream_);
  must(cudaEventRecord(begin_, stream_), "timing");
  work();
  must(cudaEventRecord(end_, stream_), "timing");
  must(cudaEventSynchronize(end_), "waiting for a step");
  float milliseconds = 0;
  must(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
  return milliseconds;
}

Timing CudaTimer::repeat(const std::function<void()>& work, const std::function<void()>& prepare) {
  for (int i = 0; i < warm_up_; ++i) once(work, prepare);
  std::vector<double> samples(static_cast<size_t>(samples_));
  for (double& sample : samples) sample = once(work, prepare);
  return summarise(std::move(samples));
}

std::optional<std::string> CudaTimer::time(const Launch& launch,
                                           const std::function<void()>& prepare, Timing* timing) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
  auto refusal = launch();
  const cudaError_t captured = cudaStreamEndCapture(stream_, &graph);
  if (!refusal && captured != cudaSuccess) {
    cudaGetLastError();
    refusal = std::string("it cannot be captured in a graph: ") + cudaGetErrorString(captured);
  }
  if (refusal) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    return refusal;
  }
  must(cudaGraphInstantiate(&ready, graph, 0), "making a graph");
  must(cudaGraphUpload(ready, stream_), "making a graph");
  *timing = repeat([&] { must(cudaGraphLaunch(ready, stream_), "replaying a step"); }, prepare);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  return std::nullopt;
}

double CudaTimer::copyBandwidth() {
  DeviceMemory from, to;
  size_t bytes = kBandwidthBytes;
  while (bytes > 1 << 20 && !(from.allocate(bytes) && to.allocate(bytes))) bytes /= 2;
  must(cudaMemsetAsync(from.as<void>(), 0, bytes, stream_), "clearing memory");
  const auto copy = [&] {
    must(cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, stream_),
         "copying");
  };
  return 2.0 * static_cast<double>(bytes) / repeat(copy, [] {}).median / 1e6;
}

double CudaTimer::readBandwidth() {
  DeviceMemory from;
  size_t bytes = kBandwidthBytes;
  while (bytes > 1 << 20 && !from.allocate(bytes)) bytes /= 2;
  must(cudaMemsetAsync(from.as<void>(), 0, bytes, stream_), "clearing memory");
  const auto read = [&] { readAll(from.as<void>(), bytes, sum_.as<uint32_t>(), stream_); };
  return static_cast<double>(bytes) / repeat(read, [] {}).median / 1e6;
}

}  // namespace allot::bench
