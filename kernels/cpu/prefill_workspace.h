#pragma once
// The threads and scratch memory of a prefill. Private to kernels/cpu. The workspace's one caller
// owns it; during a call each thread has its own PrefillScratch.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/prefill.h"
#include "kernels/cpu/block_products.h"
#include "kernels/cpu/group_draws.h"
#include "kernels/cpu/thread_pool.h"

namespace allot::kernels {

// Returns head_dim, rounded up to whole tiles of lanes.
inline int channelsOf(int head_dim) {
  return (head_dim + kTileLanes - 1) / kTileLanes * kTileLanes;
}

// One thread's scratch of sampled rows, for one KV head of one query block at a time.
struct SampledRowsScratch {
  // Of one query's exponentials: their largest score and sum, and the sum over keys that can be
  // drawn.
  struct Sums {
    float top = 0;
    double total = 0, rest = 0;
  };
  std::vector<float> scores, exp_weights;  // [group, padded length]
  std::vector<Sums> sums;                  // [64, group]
  std::vector<double> mixture;             // [keys]
  GroupDraw draw;
  std::vector<float> weights;          // of the rows drawn
  std::vector<const void*> addresses;  // of their values
};

// One thread's scratch, for one head of one query block at a time.
struct PrefillScratch {
  std::vector<float> queries;  // [64, head_dim], times `scale`; then zeros to a whole tile
  std::vector<float> keys;     // [head_dim, 64]; zeros for keys that no query of the block sees
  std::vector<float> values;   // [64, channels], channels = channelsOf(head_dim)
  std::vector<float> sums;     // [64, channels] outputs times their softmax's sum
  float scores[kBlockQueries * kBlockKeys];
  float top[kBlockQueries];
  double total[kBlockQueries];
  std::vector<float> block_lse;   // [key blocks, 64], for sampled blocks
  std::vector<uint64_t> weights;  // [key blocks], for sampled blocks
  SampledRowsScratch rows;
  PrefillStatistics statistics;
  int failed_item = -1;
};

struct PrefillWorkspace::Impl {
  explicit Impl(int threads) : pool(threads), scratch(static_cast<size_t>(pool.threads())) {}

  void plan(int head_dim) {
    const auto channels = static_cast<size_t>(channelsOf(head_dim));
    for (PrefillScratch& one : scratch) {
      if (one.values.size() == kBlockKeys * channels &&
          one.keys.size() == kBlockKeys * static_cast<size_t>(head_dim))
        continue;
      one.queries.assign(kBlockQueries * static_cast<size_t>(head_dim), 0.0f);
      one.keys.assign(kBlockKeys * static_cast<size_t>(head_dim), 0.0f);
      one.values.assign(kBlockKeys * channels, 0.0f);
      one.sums.assign(kBlockQueries * channels, 0.0f);
    }
  }

  ThreadPool pool;
  std::vector<PrefillScratch> scratch;
};

// Adds the threads' statistics to out.statistics. Returns nothing, or a sentence about the failed
// item of the largest number, which nameOf names.
std::optional<std::string> finishPrefill(PrefillWorkspace::Impl* space, const PrefillOutputs& out,
                                         const std::function<std::string(int item)>& nameOf);

// Returns nothing, or one sentence that says what is refused.
std::optional<std::string> checkPrefill(const PagedKv& kv, const PrefillInputs& in);

}  // namespace allot::kernels
