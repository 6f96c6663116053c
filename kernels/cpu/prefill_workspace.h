#pragma once
// What the stages of a prefill share. Private to kernels/cpu.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/kernels/prefill.h"
#include "kernels/cpu/block_products.h"
#include "kernels/cpu/thread_pool.h"

namespace allot::kernels {

inline int channelsOf(int head_dim) {
  return (head_dim + kTileLanes - 1) / kTileLanes * kTileLanes;
}

// What one thread works with: one head of one query block at a time.
struct PrefillScratch {
  std::vector<float> queries;  // [64, head_dim], times the scale; zeros where there is no query
  std::vector<float> keys;     // [head_dim, 64]; zeros where no query of the block sees the key
  std::vector<float> values;   // [64, channels]: head_dim up to whole tiles
  std::vector<float> sums;     // [64, channels]: outputs times their softmax's sum
  float scores[kBlockQueries * kBlockKeys];
  float top[kBlockQueries];
  double total[kBlockQueries];
  std::vector<float> block_lse;   // sampled blocks: [key blocks, 64]
  std::vector<uint64_t> weights;  // and their masses, [key blocks]
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

// Nothing, or one sentence that names the tensor and the entry.
std::optional<std::string> checkPrefill(const PagedKv& kv, const PrefillInputs& in);

}  // namespace allot::kernels
