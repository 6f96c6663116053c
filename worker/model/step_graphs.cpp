#include "worker/model/step_graphs.h"

#include <algorithm>
#include <exception>

namespace allot {

std::optional<std::string> StepGraphs::run(const std::string& name, uint64_t memory,
                                           cudaStream_t stream, const Enqueue& enqueue) {
  if (memory != memory_) clear();
  memory_ = memory;
  const auto known = steps_.find(name);
  if (known == steps_.end()) {
    // First calls allocate and load modules, which a capture does not allow.
    if (auto why = enqueue()) return why;
    if (steps_.size() == kMost) forgetOldest();
    steps_[name].used = ++clock_;
    return {};
  }
  Step& step = known->second;
  step.used = ++clock_;
  if (!step.graph && !step.refused) capture(stream, enqueue, &step);
  if (step.refused) return enqueue();
  const cudaError_t error = cudaGraphLaunch(step.graph, stream);
  if (error == cudaErrorMemoryAllocation) {
    // There is no memory for the graph; enqueued kernel by kernel, the step needs none.
    cudaGetLastError();
    cudaGraphExecDestroy(step.graph);
    step = {.graph = nullptr, .refused = true, .used = step.used};
    return enqueue();
  }
  if (error != cudaSuccess) return std::string(cudaGetErrorString(error));
  ++launched_;
  return {};
}

void StepGraphs::capture(cudaStream_t stream, const Enqueue& enqueue, Step* step) {
  step->refused = true;
  // Only this thread is captured: others may allocate meanwhile.
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  bool whole = false;
  try {
    whole = !enqueue();
  } catch (const std::exception&) {
    // LibTorch's. The step is refused below.
  }
  cudaGraph_t graph = nullptr;
  whole = cudaStreamEndCapture(stream, &graph) == cudaSuccess && whole;
  if (whole && cudaGraphInstantiate(&step->graph, graph, 0) == cudaSuccess) step->refused = false;
  if (step->refused) step->graph = nullptr;
  if (graph) cudaGraphDestroy(graph);
  // An error of the capture is no error of the step: enqueued directly, the step reports its own
  // errors.
  cudaGetLastError();
}

void StepGraphs::forgetOldest() {
  const auto oldest =
      std::min_element(steps_.begin(), steps_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (oldest->second.graph) cudaGraphExecDestroy(oldest->second.graph);
  steps_.erase(oldest);
}

void StepGraphs::clear() {
  for (const auto& [name, step] : steps_) {
    if (step.graph) cudaGraphExecDestroy(step.graph);
  }
  steps_.clear();
}

}  // namespace allot
