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
    return {.queries = queries.data() + width() * first,
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
    return queries.data() + width() * position + head * cache.shape.head_dim;
  }

  Cache cache;
  int n, window;
  std::vector<float> queries;
};

// What the queries of a prompt give over blocks of keys.
struct Attended {
  std::vector<float> out, lse;
  PrefillStatistics statistics;
  bool operator==(const Attended& other) const { return out == other.out && lse == other.lse; }
};
// Attends to the list's blocks, or to those that `draws` draw, or densely.
inline Attended attend(const Prompt& prompt, const PrefillInputs& in, const BlockLists* list,
                       PrefillWorkspace* workspace, const QueryDraws* draws = nullptr) {
  const KeyBlocks view = list ? list->view() : KeyBlocks{};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Attended made{std::vector<float>(prompt.width() * in.count, nan),
                std::vector<float>(static_cast<size_t>(in.count) * in.heads, nan),
                {}};
  const PrefillOutputs out = {made.out.data(), made.lse.data(), &made.statistics};
  const PagedKv& kv = prompt.cache.pool.kv;
  EXPECT_EQ(draws ? attendSampledBlocks(kv, in, *draws, workspace, out)
                  : attendBlocks(kv, in, list ? &view : nullptr, workspace, out),
            std::nullopt);
  return made;
}

// What the queries of a prompt give where each is attended to for itself, and the bits of the value
// rows that any of them reads, [heads, n / 64 + 1].
struct AttendedEach {
  std::vector<float> out, lse;
  std::vector<uint64_t> value_rows;
  RowStatistics statistics;
};
inline AttendedEach attendEach(const MethodOptions& method, const Prompt& prompt,
                               const PrefillInputs& in, const QueryDraws& draws,
                               bool with_lse = false) {
  const int words = prompt.n / 64 + 1;
  AttendedEach made{
      std::vector<float>(prompt.width() * in.count, std::numeric_limits<float>::quiet_NaN()),
      std::vector<float>(with_lse ? static_cast<size_t>(in.count) * in.heads : 0),
      std::vector<uint64_t>(static_cast<size_t>(in.heads) * words),
      {}};
  DecodeWorkspace workspace;
  EXPECT_EQ(attendQueries(method, prompt.cache.pool.kv, in, draws, &workspace,
                          {.out = made.out.data(),
                           .lse = with_lse ? made.lse.data() : nullptr,
                           .statistics = &made.statistics,
                           .value_rows = made.value_rows.data(),
                           .value_row_words = words}),
            std::nullopt);
  return made;
}

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
  std::vector<double> weights(position + 1, 0.0);
  const int oldest = prompt.inputs().oldest(position);
  for (int j = oldest; j <= position; ++j) weights[j] = scoreOf(prompt, position, head, j);
  const double top = *std::max_element(weights.begin() + oldest, weights.end());
  double total = 0;
  for (int j = oldest; j <= position; ++j) total += weights[j] = std::exp(weights[j] - top);
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
        prompt.queries[prompt.width() * p + h * width + d] +=
            2.0f * static_cast<float>(std::sin(turn)) + 0.6f;
      }
    }
  }
  cache.scale = 0.18f * std::sqrt(32.0f / static_cast<float>(width));
  cache.write();
  return prompt;
}

}  // namespace allot::kernels
