#pragma once
// How many workers a machine's memory holds, and how much of it each has for keys and values.
// Pure functions, any thread.
#include <cstdint>

#include "core/result.h"

namespace allot {

// What `allot-worker --check` found, and what there is for it. Memory in MiB.
struct WorkerNeeds {
  bool gpu = false;
  unsigned cores = 1;
  uint64_t free_mib = 0;      // with no worker on it
  uint64_t weights_mib = 0;   // of each worker
  uint64_t least_kv_mib = 0;  // of each worker: the longest question and its answer
};

struct WorkerSizes {
  unsigned workers = 1;
  uint64_t kv_mib = 0;     // of each worker
  bool by_memory = false;  // fewer than there would be, for want of memory
};

// `workers` and `kv_mib` are what a person asked for; 0: as many workers as fit beside each other,
// a core's worth each or one on a GPU, and half of what their weights leave. kUsage: keys and
// values that hold no question.
Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib);

}  // namespace allot
