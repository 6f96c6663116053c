#pragma once
// What the tests of prefill attention share: a prompt with a query at each position, lists of key
// blocks, and what can be said of them in double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "allot/kernels/prefill.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {

// A prompt with a query at each position.
struct Prompt {
  explicit Prompt(const CacheShape& shape, int window = 0)
      : cache(shape), n(shape.lengths.front()), window(window) {
    queries = normals(static_cast<size_t>(n) * shape.heads * shape.head_dim, shape.seed + 99);
  }
  PrefillInputs inputs(int first, int count) const {
    return {.queries = queries.data() + width() * static_cast<size_t>(first),
            .page_table = cache.table.data(),
            .max_pages = cache.max_pages,
            .first = first,
            .count = count,
            .heads = cache.shape.heads,
            .scale = cache.scale,
            .window = window};
  }
  PrefillInputs inputs() const { return inputs(0, n); }
  size_t width() const { return static_cast<size_t>(cache.shape.heads) * cache.shape.head_dim; }
  const float* query(int position, int head) const {
    return queries.data() + width() * static_cast<size_t>(position) +
           static_cast<size_t>(head) * cache.shape.head_dim;
  }

  Cache cache;
  int n, window;
  std::vector<float> queries;
};

// The list of a whole prompt that keeps what keep(head, query block, key block) says.
template <typename Keep>
BlockLists listOf(const Prompt& prompt, int query_block, int key_block, Keep keep) {
  BlockLists made{query_block, key_block, {0}, {}};
  const int blocks = queryBlocks(prompt.inputs(), query_block);
  for (int h = 0; h < prompt.cache.shape.heads; ++h) {
    for (int b = 0; b < blocks; ++b) {
      const int last = std::min(prompt.n, (b + 1) * query_block) - 1;
      for (int k = 0; k <= last / key_block; ++k) {
        if (keep(h, b, k)) made.blocks.push_back(static_cast<uint32_t>(k));
      }
      made.begin.push_back(static_cast<uint32_t>(made.blocks.size()));
    }
  }
  return made;
}

// Whether the head's query at `position` attends to this key's block.
inline bool holds(const BlockLists& lists, const Prompt& prompt, int head, int position, int key) {
  const int blocks = queryBlocks(prompt.inputs(), lists.query_block);
  const size_t i = static_cast<size_t>(head * blocks + position / lists.query_block);
  return std::binary_search(lists.blocks.begin() + lists.begin[i],
                            lists.blocks.begin() + lists.begin[i + 1],
                            static_cast<uint32_t>(key / lists.key_block));
}

// q.k of the query at `position`, times the scale.
inline double scoreOf(Prompt& prompt, int position, int head, int key) {
  const float* k = prompt.cache.key(0, prompt.cache.kvHead(head), key);
  double score = 0;
  for (int d = 0; d < prompt.cache.shape.head_dim; ++d) {
    score += static_cast<double>(prompt.query(position, head)[d]) * static_cast<double>(k[d]);
  }
  return score * static_cast<double>(prompt.cache.scale);
}

// The exact causal attention of the query at `position`: [position + 1], 0 before the window.
inline std::vector<double> attentionOf(Prompt& prompt, int position, int head) {
  std::vector<double> weights(static_cast<size_t>(position) + 1, 0.0);
  const int oldest = prompt.inputs().oldest(position);
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (int j = oldest; j <= position; ++j) {
    weights[static_cast<size_t>(j)] = scoreOf(prompt, position, head, j);
    top = std::max(top, weights[static_cast<size_t>(j)]);
  }
  for (int j = oldest; j <= position; ++j) {
    double& weight = weights[static_cast<size_t>(j)];
    weight = std::exp(weight - top);
    total += weight;
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

// Attention like that of models: some keys that everybody looks at, and neighbours alike. The
// shape's lengths and seed are set here.
inline Prompt structured(int n, uint64_t seed, int window = 0,
                         CacheShape shape = {.kv_heads = 2, .heads = 4, .head_dim = 32}) {
  shape.lengths = {n};
  shape.seed = seed;
  Prompt prompt(shape, window);
  Cache& cache = prompt.cache;
  const int width = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    for (int j = 0; j < n; ++j) {
      for (int d = 0; d < width; ++d) {
        float& x = cache.key(0, h, j)[d];
        const double turn = 0.02 * j * (1 + d % 8) + d;
        x = 0.7f * x + 2.5f * static_cast<float>(std::sin(turn)) + (j % 97 == 3 ? 1.0f : 0.0f);
        x = fromBFloat16(toBFloat16(x));
      }
    }
  }
  for (int p = 0; p < n; ++p) {
    for (int h = 0; h < shape.heads; ++h) {
      for (int d = 0; d < width; ++d) {
        const double turn = 0.02 * p * (1 + d % 8) + d;
        const size_t at =
            prompt.width() * static_cast<size_t>(p) + static_cast<size_t>(h * width + d);
        prompt.queries[at] += 2.0f * static_cast<float>(std::sin(turn)) + 0.6f;
      }
    }
  }
  cache.scale = 0.18f * std::sqrt(32.0f / static_cast<float>(width));
  cache.write();
  return prompt;
}

}  // namespace allot::kernels
