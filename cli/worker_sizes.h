#pragma once
// How many workers a machine's memory holds, how much of it each has for keys and values, and on
// which GPU it is. Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// What `allot-worker --check` found, and what there is for it. Memory in MiB.
struct WorkerNeeds {
  bool gpu = false;
  unsigned gpus = 1;  // that workers may be on, alike
  unsigned cores = 1;
  uint64_t free_mib = 0;      // with no worker on it; of one GPU
  uint64_t weights_mib = 0;   // of each worker
  uint64_t least_kv_mib = 0;  // of each worker: the longest question and its answer
};

struct WorkerSizes {
  unsigned workers = 1;
  uint64_t kv_mib = 0;     // of each worker
  bool by_memory = false;  // fewer than there would be, for want of memory
};

// `workers` and `kv_mib` are what a person asked for; 0: as many workers as fit beside each other,
// a core's worth each or one on each GPU, and half of what their weights leave. kUsage: keys and
// values that hold no question.
Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib);

// CUDA_VISIBLE_DEVICES of each worker, where `seen` GPUs are seen by a process that has `visible`
// as its own, if it has one: the first worker has the first GPU, and more workers than GPUs go
// round them. Empty where there is nothing to choose: one GPU, or none.
std::vector<std::string> gpusOfWorkers(unsigned seen, const std::optional<std::string>& visible,
                                       unsigned workers);
// What a person is told of it, as in "4 GPUs, a worker on each"; "" where there is nothing to say.
std::string gpusText(unsigned seen, unsigned workers);

}  // namespace allot
