#pragma once
// StepGraphs: captures decode steps as CUDA graphs and replays them, so that a step of hundreds of
// kernels costs the host one call.
//
// A step is named by a text with all arguments that its kernels get by value. The contents of the
// memory that the kernels read may change between replays. One thread. Private to worker/model/.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

namespace allot {

class StepGraphs {
 public:
  // Puts kernels on a stream and waits for nothing. A refusal is a sentence.
  using Enqueue = std::function<std::optional<std::string>()>;

  StepGraphs() = default;
  ~StepGraphs() { clear(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Runs the step `name` on the stream: the first time by calling `enqueue`, the second time by
  // capturing it and launching the graph, later by the graph. If `memory` is not the last call's,
  // memory has moved: all graphs are dropped. A step that cannot be captured is enqueued each time.
  // Requires: stream is not the default stream.
  [[nodiscard]] std::optional<std::string> run(const std::string& name, uint64_t memory,
                                               cudaStream_t stream, const Enqueue& enqueue);

  // Returns the number of steps that were launched as a graph.
  uint64_t launched() const { return launched_; }
  void clear();

 private:
  // Enough for a batch of up to 160 rows that shrinks row by row. Each graph takes some memory of
  // the host and of the GPU.
  static constexpr size_t kMost = 256;

  struct Step {
    cudaGraphExec_t graph = nullptr;  // null: not captured yet
    bool refused = false;             // it cannot be captured
    uint64_t used = 0;
  };

  // Marks the step as refused if it cannot be captured; nothing has then run.
  void capture(cudaStream_t stream, const Enqueue& enqueue, Step* step);
  void forgetOldest();

  std::unordered_map<std::string, Step> steps_;
  uint64_t memory_ = 0;
  uint64_t clock_ = 0;
  uint64_t launched_ = 0;
};

}  // namespace allot
