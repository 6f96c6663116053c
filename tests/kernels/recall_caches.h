#pragma once
// The recorded states of recall-7m as caches of one head each.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/kernels/fixture.h"
#include "tests/kernels/recall_states.h"

namespace allot::kernels {

// Heads of the recorded states, one a cache: of all steps of each block, or of the first.
inline std::vector<Cache> recallCaches(bool all_steps) {
  std::vector<Cache> list;
  for (const RecallBlock& b :
       readRecallStates(ALLOT_SOURCE_DIR "/tests/golden/recall_states.bin")) {
    const int dim = static_cast<int>(b.head_dim);
    for (uint32_t i = 0; i < b.heads * (all_steps ? b.steps : 1); ++i) {
      const uint32_t head = i % b.heads, step = i / b.heads;
      const uint32_t kv_head = head / (b.heads / b.kv_heads);
      const int n = b.length(step);
      Cache cache({.lengths = {n}, .head_dim = dim, .element = Element::kBFloat16});
      for (int j = 0; j < n; ++j) {
        const size_t from = (static_cast<size_t>(j) * b.kv_heads + kv_head) * dim;
        std::copy_n(b.keys.data() + from, dim, cache.key(0, 0, j));
        std::copy_n(b.values.data() + from, dim, cache.value(0, 0, j));
      }
      std::copy_n(b.queries.data() + (static_cast<size_t>(step) * b.heads + head) * dim, dim,
                  cache.query(0, 0));
      cache.scale = 1 / std::sqrt(static_cast<float>(dim));
      cache.write();
      list.push_back(std::move(cache));
    }
  }
  EXPECT_FALSE(list.empty()) << "tests/golden/recall_states.bin is not there";
  return list;
}

}  // namespace allot::kernels
