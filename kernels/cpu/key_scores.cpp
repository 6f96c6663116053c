#include "kernels/cpu/key_scores.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/elements.h"

namespace allot::kernels {
namespace {

// Returns sum(v[i]) in lane i, with the additions of sum() in the same order: sixteen sums for
// about the price of three. Overwrites v.
ALLOT_INLINE Float16 sums(Float16* v) {
  for (int i = 0; i < 8; ++i) {
    const Float16 a = v[2 * i], b = v[2 * i + 1];
    v[i] =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {
    const Float16 a = v[2 * i], b = v[2 * i + 1];
    v[i] =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    const Float16 a = v[2 * i], b = v[2 * i + 1];
    v[i] =
        __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
        __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
  }
  return __builtin_shufflevector(v[0], v[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                 30) +
         __builtin_shufflevector(v[0], v[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                 31);
}

// Returns sixteen products: of `Heads` queries, head_dim apart, with 16 / Heads keys. Lane
// h * (16 / Heads) + k is q_h . keys[k].
template <int Heads, typename T>
ALLOT_INLINE Float16 products(const float* queries, const T* const* keys, int head_dim) {
  constexpr int kKeys = 16 / Heads;
  Float16 v[16] = {};
  for (int d = 0; d < head_dim; d += 16) {
    Float16 key[kKeys];
    for (int k = 0; k < kKeys; ++k) key[k] = loadElements(keys[k] + d);
    for (int h = 0; h < Heads; ++h) {
      const Float16 query = load(queries + static_cast<int64_t>(h) * head_dim + d);
      for (int k = 0; k < kKeys; ++k) v[h * kKeys + k] += query * key[k];
    }
  }
  return sums(v);
}

// Writes the products of products(), bit for bit, times `scale`. Computes four at a time by vectors
// of eight lanes, whose eight sums fit sixteen registers.
template <int Heads, typename T>
ALLOT_INLINE void narrowProducts(const float* queries, const T* const* keys, int head_dim,
                                 float scale, float* to) {
  constexpr int kKeys = 16 / Heads, kAtOnce = 4 / Heads;
  Float8 v[16];
  for (int first = 0; first < kKeys; first += kAtOnce) {
    Float8 low[4] = {}, high[4] = {};
    for (int d = 0; d < head_dim; d += 16) {
      for (int k = 0; k < kAtOnce; ++k) {
        const Float8 a = loadEight(keys[first + k] + d), b = loadEight(keys[first + k] + d + 8);
        for (int h = 0; h < Heads; ++h) {
          const float* query = queries + static_cast<int64_t>(h) * head_dim + d;
          low[h * kAtOnce + k] += loadEight(query) * a;
          high[h * kAtOnce + k] += loadEight(query + 8) * b;
        }
      }
    }
    for (int h = 0; h < Heads; ++h) {
      for (int k = 0; k < kAtOnce; ++k) {
        v[h * kKeys + first + k] = low[h * kAtOnce + k] + high[h * kAtOnce + k];
      }
    }
  }
  for (int i = 0; i < 8; ++i) {
    const Float8 a = v[2 * i], b = v[2 * i + 1];
    v[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    const Float8 a = v[2 * i], b = v[2 * i + 1];
    v[i] = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
  }
  for (int i = 0; i < 2; ++i) {
    const Float8 a = v[2 * i], b = v[2 * i + 1];
    store(to + 8 * i, scale * (__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
                               __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)));
  }
}

template <int Heads, typename T>
ALLOT_INLINE void scaledProducts(const float* queries, const T* const* keys, int head_dim,
                                 float scale, float* to) {
  if (hasWideVectors()) {
    at(to) = scale * products<Heads>(queries, keys, head_dim);
  } else {
    narrowProducts<Heads>(queries, keys, head_dim, scale, to);
  }
}

// The scores of `count` consecutive keys of a page: those of head h at scores + h * stride.
template <typename T>
struct PieceTask {
  const float* queries;  // [group, head_dim]
  const T* keys;
  const T* ahead;  // to prefetch
  int group, head_dim, count;
  float scale;
  float* scores;
  int64_t stride;
};

// Scores the heads from `head` on.
template <int Heads, typename T>
ALLOT_INLINE void scoreHeads(const PieceTask<T>& task, int head) {
  constexpr int kKeys = 16 / Heads;
  const int head_dim = task.head_dim, count = task.count;
  const float* queries = task.queries + static_cast<int64_t>(head) * head_dim;
  for (int j = 0; j < count; j += kKeys) {
    fetch(task.ahead + static_cast<int64_t>(j) * head_dim, kKeys * head_dim * sizeof(T));
    const T* rows[kKeys];
    // Beyond the end the last key again: its products are not stored.
    for (int k = 0; k < kKeys; ++k) {
      rows[k] = task.keys + static_cast<int64_t>(std::min(j + k, count - 1)) * head_dim;
    }
    float flat[16];
    scaledProducts<Heads>(queries, rows, head_dim, task.scale, flat);
    const int valid = std::min(kKeys, count - j);
    for (int h = 0; h < Heads; ++h) {
      float* to = task.scores + (head + h) * task.stride + j;
      if (valid == kKeys) {
        std::memcpy(to, flat + h * kKeys, kKeys * sizeof(float));
      } else {
        for (int k = 0; k < valid; ++k) to[k] = flat[h * kKeys + k];
      }
    }
  }
}

template <typename T>
ALLOT_INLINE void scoreGroup(const PieceTask<T>& task) {
  int h = 0;
  for (; h + 4 <= task.group; h += 4) scoreHeads<4>(task, h);
  if (h + 2 <= task.group) {
    scoreHeads<2>(task, h);
    h += 2;
  }
  if (h < task.group) scoreHeads<1>(task, h);
}

// One function for each element: clones are not templates.
ALLOT_CLONES
void scorePiece(const PieceTask<float>& task) { scoreGroup(task); }
ALLOT_CLONES
void scorePiece(const PieceTask<uint16_t>& task) { scoreGroup(task); }
ALLOT_CLONES
void scorePiece(const PieceTask<uint8_t>& task) { scoreGroup(task); }

// Score sixteen scattered keys.
ALLOT_CLONES
void scoreScattered(const float* query, const float* const* keys, int head_dim, float scale,
                    float* scores) {
  scaledProducts<1>(query, keys, head_dim, scale, scores);
}
ALLOT_CLONES
void scoreScattered(const float* query, const uint16_t* const* keys, int head_dim, float scale,
                    float* scores) {
  scaledProducts<1>(query, keys, head_dim, scale, scores);
}
ALLOT_CLONES
void scoreScattered(const float* query, const uint8_t* const* keys, int head_dim, float scale,
                    float* scores) {
  scaledProducts<1>(query, keys, head_dim, scale, scores);
}

template <typename T>
void scorePages(const KeyRange& keys, const float* queries, int group, float scale, float* scores,
                int64_t stride) {
  const PagedKv& kv = *keys.kv;
  constexpr int kPiece = 16;  // no longer than kAhead
  const auto* pool = static_cast<const T*>(kv.keys);
  const auto piece = [&](int start) {
    return pool + kv.offset(keys.pages[start / kv.page_size], keys.kv_head, start % kv.page_size);
  };
  for (int start = keys.first; start < keys.n;) {
    const int in_page = kv.page_size - start % kv.page_size;
    const int count = std::min({kPiece, in_page, keys.n - start});
    const int ahead = std::min(start + kAhead, keys.n - 1);
    scorePiece(PieceTask<T>{queries, piece(start), piece(ahead), group, kv.head_dim, count, scale,
                            scores + start, stride});
    start += count;
  }
}

template <typename T>
void scoreRows(const KeyRange& keys, const float* query, float scale, const int32_t* rows,
               int count, float* scores) {
  const PagedKv& kv = *keys.kv;
  const auto* pool = static_cast<const T*>(kv.keys);
  constexpr int kRows = 16;
  const T* now[kRows];
  const T* next[kRows];
  const auto find = [&](int first, const T** to) {
    for (int i = 0; i < kRows; ++i) {
      const int j = rows[std::min(first + i, count - 1)];
      to[i] = pool + kv.offset(keys.pages[j / kv.page_size], keys.kv_head, j % kv.page_size);
      if (first + i < count) fetch(to[i], static_cast<size_t>(kv.head_dim) * sizeof(T));
    }
  };
  if (count > 0) find(0, next);
  for (int first = 0; first < count; first += kRows) {
    std::copy_n(next, kRows, now);
    if (first + kRows < count) find(first + kRows, next);
    float flat[kRows];
    scoreScattered(query, now, kv.head_dim, scale, flat);
    std::copy_n(flat, std::min(kRows, count - first), scores + first);
  }
}

}  // namespace

void exactScores(const KeyRange& keys, const float* queries, int group, float scale, float* scores,
                 int64_t stride) {
  const auto score =
      byElement(keys.kv->element, scorePages<float>, scorePages<uint16_t>, scorePages<uint8_t>);
  score(keys, queries, group, scale, scores, stride);
}

void exactScoresOf(const KeyRange& keys, const float* query, float scale, const int32_t* rows,
                   int count, float* scores) {
  const auto score =
      byElement(keys.kv->element, scoreRows<float>, scoreRows<uint16_t>, scoreRows<uint8_t>);
  score(keys, query, scale, rows, count, scores);
}

}  // namespace allot::kernels
