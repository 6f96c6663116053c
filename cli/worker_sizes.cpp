#include "cli/worker_sizes.h"

#include <algorithm>
#include <sstream>
#include <string>

namespace allot {
namespace {

constexpr uint64_t kLeastMib = 64;  // for keys and values, where nobody says otherwise

}  // namespace

Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib) {
  if (kv_mib > 0 && kv_mib < needs.least_kv_mib) {
    return badInput("--kv-memory: " + std::to_string(kv_mib) +
                    " MiB do not hold the keys and values of the longest question with its "
                    "answer: raise --kv-memory to at least " +
                    std::to_string(needs.least_kv_mib));
  }
  // A limit may be generous: what it allows becomes memory as it is needed.
  const uint64_t each = needs.weights_mib + needs.least_kv_mib;
  WorkerSizes sizes;
  // A worker is a core's worth of work, or a GPU's: two there take turns with their kernels, and
  // each has the weights.
  const unsigned memories = needs.gpu ? std::max(1U, needs.gpus) : 1;
  const unsigned usual = needs.gpu ? memories : std::max(1U, needs.cores);
  const uint64_t fit =
      memories * std::max<uint64_t>(1, needs.free_mib / std::max<uint64_t>(1, each));
  sizes.workers = workers > 0 ? workers : static_cast<unsigned>(std::min<uint64_t>(usual, fit));
  sizes.by_memory = workers == 0 && sizes.workers < usual;
  const uint64_t sharing = (sizes.workers + memories - 1) / memories;
  const uint64_t weights = needs.weights_mib * sharing;
  const uint64_t left = needs.free_mib > weights ? needs.free_mib - weights : 0;
  sizes.kv_mib =
      kv_mib > 0 ? kv_mib : std::max({kLeastMib, needs.least_kv_mib, left / 2 / sharing});
  return sizes;
}

std::vector<std::string> gpusOfWorkers(unsigned seen, const std::optional<std::string>& visible,
                                       unsigned workers) {
  if (seen < 2) return {};
  // CUDA takes the entries in order, up to the first that is none.
  std::vector<std::string> gpus;
  std::stringstream entries(visible.value_or(""));
  for (std::string entry; gpus.size() < seen && std::getline(entries, entry, ',');) {
    gpus.push_back(entry);
  }
  if (gpus.size() < seen) {
    gpus.clear();
    for (unsigned i = 0; i < seen; ++i) gpus.push_back(std::to_string(i));
  }
  std::vector<std::string> chosen;
  for (unsigned i = 0; i < workers; ++i) chosen.push_back(gpus[i % seen]);
  return chosen;
}

std::string gpusText(unsigned seen, unsigned workers) {
  if (seen < 2) return "";
  const std::string gpus = std::to_string(seen) + " GPUs";
  if (workers == seen) return gpus + ", a worker on each";
  if (workers < seen)
    return gpus + ", of which " + std::to_string(workers) +
           (workers == 1 ? " is used" : " are used");
  return gpus + ", which the " + std::to_string(workers) + " workers go round";
}

}  // namespace allot
