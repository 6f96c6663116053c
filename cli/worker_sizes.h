#pragma once
// Computes how many workers a machine's memory holds, their memory for keys and values, and their
// GPUs. Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// The findings of `allot-worker --check`, and the machine's resources. Memory in MiB.
struct WorkerNeeds {
  bool gpu = false;
  unsigned gpus = 1;  // for workers, all of one kind
  unsigned cores = 1;
  uint64_t free_mib = 0;      // without any worker; of one GPU
  uint64_t weights_mib = 0;   // of each worker
  uint64_t least_kv_mib = 0;  // of each worker: the longest question and its answer
};

struct WorkerSizes {
  unsigned workers = 1;
  uint64_t kv_mib = 0;     // of each worker
  bool by_memory = false;  // memory limits the number of workers
};

// Computes the sizes. `workers` and `kv_mib` are a person's wishes; 0: as many workers as fit, one
// a core's worth or one on each GPU, and half of the memory beside their weights. kUsage: keys and
// values of one question do not fit.
Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib);

// Returns CUDA_VISIBLE_DEVICES of each worker. The calling process sees `seen` GPUs, and has the
// value `visible` if it is set. The first worker has the first GPU; more workers than GPUs share
// them in turn. Empty if there is no choice: one GPU, or none.
std::vector<std::string> gpusOfWorkers(unsigned seen, const std::optional<std::string>& visible,
                                       unsigned workers);
// Returns a text for people like "4 GPUs, a worker on each"; "" if there is nothing to say.
std::string gpusText(unsigned seen, unsigned workers);

}  // namespace allot
