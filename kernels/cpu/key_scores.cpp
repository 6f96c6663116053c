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

template <bool Wide, int Heads, typename T>
ALLOT_INLINE void scaledProducts(const float* queries, const T* const* keys, int head_dim,
                                 float scale, float* to) {
  if constexpr (Wide) {
    at(to) = scale * products<Heads>(queries, keys, head_dim);
  } else {
    narrowProducts<Heads>(queries, keys, head_dim, scale, to);
  }
}

// Scores `count` consecutive keys, those of head h at scores + h * stride. Prefetches keys at
// `ahead`.
template <bool Wide, int Heads, typename T>
ALLOT_INLINE void scoreHeads(const float* queries, const T* keys, const T* ahead, int head_dim,
                             int count, float scale, float* scores, int64_t stride) {
  constexpr int kKeys = 16 / Heads;
  for (int j = 0; j < count; j += kKeys) {
    fetch(ahead + static_cast<int64_t>(j) * head_dim, kKeys * head_dim * sizeof(T));
    const T* rows[kKeys];
    // Beyond the end the last key again: its products are not stored.
    for (int k = 0; k < kKeys; ++k) {
      rows[k] = keys + static_cast<int64_t>(std::min(j + k, count - 1)) * head_dim;
    }
    float flat[16];
    scaledProducts<Wide, Heads>(queries, rows, head_dim, scale, flat);
    const int valid = std::min(kKeys, count - j);
    for (int h = 0; h < Heads; ++h) {
      float* to = scores + h * stride + j;
      if (valid == kKeys) {
        std::memcpy(to, flat + h * kKeys, kKeys * sizeof(float));
      } else {
        for (int k = 0; k < valid; ++k) to[k] = flat[h * kKeys + k];
      }
    }
  }
}

template <bool Wide, typename T>
ALLOT_INLINE void scorePage(const float* queries, const T* keys, const T* ahead, int group,
                            int head_dim, int count, float scale, float* scores, int64_t stride) {
  int h = 0;
  for (; h + 4 <= group; h += 4) {
    scoreHeads<Wide, 4>(queries + static_cast<int64_t>(h) * head_dim, keys, ahead, head_dim, count,
                        scale, scores + h * stride, stride);
  }
  if (h + 2 <= group) {
    scoreHeads<Wide, 2>(queries + static_cast<int64_t>(h) * head_dim, keys, ahead, head_dim, count,
                        scale, scores + h * stride, stride);
    h += 2;
  }
  if (h < group) {
    scoreHeads<Wide, 1>(queries + static_cast<int64_t>(h) * head_dim, keys, ahead, head_dim, count,
                        scale, scores + h * stride, stride);
  }
}

// One function for each element and width: clones are not templates.
ALLOT_CLONES
void scorePageFloat32(const float* queries, const float* keys, const float* ahead, int group,
                      int head_dim, int count, float scale, float* scores, int64_t stride) {
  scorePage<true>(queries, keys, ahead, group, head_dim, count, scale, scores, stride);
}
ALLOT_CLONES
void scorePageFloat32Narrow(const float* queries, const float* keys, const float* ahead, int group,
                            int head_dim, int count, float scale, float* scores, int64_t stride) {
  scorePage<false>(queries, keys, ahead, group, head_dim, count, scale, scores, stride);
}
ALLOT_CLONES
void scorePageBFloat16(const float* queries, const uint16_t* keys, const uint16_t* ahead, int group,
                       int head_dim, int count, float scale, float* scores, int64_t stride) {
  scorePage<true>(queries, keys, ahead, group, head_dim, count, scale, scores, stride);
}
ALLOT_CLONES
void scorePageBFloat16Narrow(const float* queries, const uint16_t* keys, const uint16_t* ahead,
                             int group, int head_dim, int count, float scale, float* scores,
                             int64_t stride) {
  scorePage<false>(queries, keys, ahead, group, head_dim, count, scale, scores, stride);
}

// Score sixteen scattered keys.
ALLOT_CLONES
void scoreRowsFloat32(const float* query, const float* const* keys, int head_dim, float scale,
                      float* scores) {
  scaledProducts<true, 1>(query, keys, head_dim, scale, scores);
}
ALLOT_CLONES
void scoreRowsFloat32Narrow(const float* query, const float* const* keys, int head_dim, float scale,
                            float* scores) {
  scaledProducts<false, 1>(query, keys, head_dim, scale, scores);
}
ALLOT_CLONES
void scoreRowsBFloat16(const float* query, const uint16_t* const* keys, int head_dim, float scale,
                       float* scores) {
  scaledProducts<true, 1>(query, keys, head_dim, scale, scores);
}
ALLOT_CLONES
void scoreRowsBFloat16Narrow(const float* query, const uint16_t* const* keys, int head_dim,
                             float scale, float* scores) {
  scaledProducts<false, 1>(query, keys, head_dim, scale, scores);
}

template <typename T, typename Scorer>
void scorePages(const KeyRange& keys, const float* queries, int group, float scale, float* scores,
                int64_t stride, Scorer scorer) {
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
    scorer(queries, piece(start), piece(ahead), group, kv.head_dim, count, scale, scores + start,
           stride);
    start += count;
  }
}

template <typename T, typename Scorer>
void scoreRows(const KeyRange& keys, const float* query, float scale, const int32_t* rows,
               int count, float* scores, Scorer scorer) {
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
    scorer(query, now, kv.head_dim, scale, flat);
    std::copy_n(flat, std::min(kRows, count - first), scores + first);
  }
}

}  // namespace

void exactScores(const KeyRange& keys, const float* queries, int group, float scale, float* scores,
                 int64_t stride) {
  if (keys.kv->element == Element::kFloat32) {
    scorePages<float>(keys, queries, group, scale, scores, stride,
                      hasWideVectors() ? scorePageFloat32 : scorePageFloat32Narrow);
  } else {
    scorePages<uint16_t>(keys, queries, group, scale, scores, stride,
                         hasWideVectors() ? scorePageBFloat16 : scorePageBFloat16Narrow);
  }
}

void exactScoresOf(const KeyRange& keys, const float* query, float scale, const int32_t* rows,
                   int count, float* scores) {
  if (keys.kv->element == Element::kFloat32) {
    scoreRows<float>(keys, query, scale, rows, count, scores,
                     hasWideVectors() ? scoreRowsFloat32 : scoreRowsFloat32Narrow);
  } else {
    scoreRows<uint16_t>(keys, query, scale, rows, count, scores,
                        hasWideVectors() ? scoreRowsBFloat16 : scoreRowsBFloat16Narrow);
  }
}

}  // namespace allot::kernels
