#pragma once
// StepGraphs: decode steps that were captured once and are replayed, so that a step of hundreds of
// kernels costs the host one call.
//
// A step is named by a text that says all that its kernels were given by value; what they read from
// memory may differ from one time to the next. One thread. Private to worker/model/.
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

  // Has the step `name` on the stream: the first time by `enqueue`, the second time captured, then
  // replayed. `memory` is another number once anything that a step reads or writes has moved, and
  // all that was captured before is then forgotten. A step that cannot be captured is enqueued each
  // time. The stream is not the default one.
  [[nodiscard]] std::optional<std::string> run(const std::string& name, uint64_t memory,
                                               cudaStream_t stream, const Enqueue& enqueue);

  // Steps that were launched as a graph.
  uint64_t launched() const { return launched_; }
  void clear();

 private:
  // Enough for every number of rows of a batch of 16 to 160 that shrinks; each takes some of the
  // host's memory and of the GPU's.
  static constexpr size_t kMost = 256;

  struct Step {
    cudaGraphExec_t graph = nullptr;  // nothing: not captured yet
    bool refused = false;             // it cannot be
    uint64_t used = 0;
  };

  // Leaves the step refused where it cannot be captured, and then nothing on the stream.
  void capture(cudaStream_t stream, const Enqueue& enqueue, Step* step);
  void forgetOldest();

  std::unordered_map<std::string, Step> steps_;
  uint64_t memory_ = 0;
  uint64_t clock_ = 0;
  uint64_t launched_ = 0;
};

}  // namespace allot
