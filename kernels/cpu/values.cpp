#include "kernels/cpu/values.h"

#include <algorithm>

#include "kernels/cpu/elements.h"

namespace allot::kernels {
namespace {

// Adds 16 * Blocks channels from channel d on. Rows are scattered, so that they are prefetched.
template <int Blocks, typename T>
ALLOT_INLINE void gatherBlocks(const void* const* rows, const float* weights, int count, int d,
                               float* out) {
  constexpr int kRowsAhead = 8;
  Float16 totals[Blocks];
  for (int b = 0; b < Blocks; ++b) totals[b] = load(out + d + 16 * b);
  for (int i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) {
      fetch(static_cast<const T*>(rows[i + kRowsAhead]) + d, 16 * Blocks * sizeof(T));
    }
    const T* row = static_cast<const T*>(rows[i]) + d;
    for (int b = 0; b < Blocks; ++b) totals[b] += weights[i] * loadElements(row + 16 * b);
  }
  for (int b = 0; b < Blocks; ++b) at(out + d + 16 * b) = totals[b];
}

template <typename T>
ALLOT_INLINE void gatherAs(const void* const* rows, const float* weights, int count, int head_dim,
                           float* out) {
  int d = 0;
  for (; d + 128 <= head_dim; d += 128) gatherBlocks<8, T>(rows, weights, count, d, out);
  for (; d + 64 <= head_dim; d += 64) gatherBlocks<4, T>(rows, weights, count, d, out);
  for (; d < head_dim; d += 16) gatherBlocks<1, T>(rows, weights, count, d, out);
}

// Adds 16 * Blocks channels for `Heads` heads: sums stay in registers over the rows, and each row
// is read and widened once for all of these heads.
template <int Heads, int Blocks, typename T>
ALLOT_INLINE void accumulateBlocks(const T* values, const T* ahead, const float* weights,
                                   int64_t weight_stride, int count, int head_dim, float* out) {
  Float16 totals[Heads][Blocks];
  for (int g = 0; g < Heads; ++g) {
    for (int b = 0; b < Blocks; ++b) totals[g][b] = load(out + g * head_dim + 16 * b);
  }
  for (int j = 0; j < count; ++j) {
    fetch(ahead + static_cast<int64_t>(j) * head_dim, Blocks * 16 * sizeof(T));
    Float16 row[Blocks];
    for (int b = 0; b < Blocks; ++b) {
      row[b] = loadElements(values + static_cast<int64_t>(j) * head_dim + 16 * b);
    }
    for (int g = 0; g < Heads; ++g) {
      const float weight = weights[g * weight_stride + j];
      for (int b = 0; b < Blocks; ++b) totals[g][b] += weight * row[b];
    }
  }
  for (int g = 0; g < Heads; ++g) {
    for (int b = 0; b < Blocks; ++b) at(out + g * head_dim + 16 * b) = totals[g][b];
  }
}

template <int Heads, typename T>
ALLOT_INLINE void accumulateHeads(const T* values, const T* ahead, const float* weights,
                                  int64_t weight_stride, int count, int head_dim, float* out) {
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) {
    accumulateBlocks<Heads, 4>(values + d, ahead + d, weights, weight_stride, count, head_dim,
                               out + d);
  }
  for (; d < head_dim; d += 16) {
    accumulateBlocks<Heads, 1>(values + d, ahead + d, weights, weight_stride, count, head_dim,
                               out + d);
  }
}

template <typename T>
ALLOT_INLINE void accumulateAs(const T* values, const T* ahead, const float* weights,
                               int64_t weight_stride, int group, int count, int head_dim,
                               float* out) {
  int g = 0;
  for (; g + 4 <= group; g += 4) {
    accumulateHeads<4>(values, ahead, weights + g * weight_stride, weight_stride, count, head_dim,
                       out + g * head_dim);
  }
  for (; g < group; ++g) {
    accumulateHeads<1>(values, ahead, weights + g * weight_stride, weight_stride, count, head_dim,
                       out + g * head_dim);
  }
}

template <typename T>
ALLOT_INLINE void accumulatePages(const PagedKv& kv, const int32_t* pages, int kv_head, int first,
                                  int n, const float* weights, int64_t weight_stride, int group,
                                  float* out) {
  constexpr int kPiece = 16;  // no longer than kAhead
  const auto address = [&](int position) {
    return static_cast<const T*>(rowAddress(kv, kv.values, pages, kv_head, position));
  };
  for (int start = first; start < n;) {
    const int count = std::min({kPiece, kv.page_size - start % kv.page_size, n - start});
    accumulateAs(address(start), address(std::min(start + kAhead, n - 1)), weights + start,
                 weight_stride, group, count, kv.head_dim, out);
    start += count;
  }
}

}  // namespace

ALLOT_CLONES
void gatherValues(const void* const* rows, const float* weights, int count, Element element,
                  int head_dim, float* out) {
  if (element == Element::kFloat32) {
    gatherAs<float>(rows, weights, count, head_dim, out);
  } else if (element == Element::kE4M3) {
    gatherAs<uint8_t>(rows, weights, count, head_dim, out);
  } else {
    gatherAs<uint16_t>(rows, weights, count, head_dim, out);
  }
}

ALLOT_CLONES
void accumulateValues(const PagedKv& kv, const int32_t* pages, int kv_head, int first, int n,
                      const float* weights, int64_t weight_stride, int group, float* out) {
  if (kv.element == Element::kFloat32) {
    accumulatePages<float>(kv, pages, kv_head, first, n, weights, weight_stride, group, out);
  } else if (kv.element == Element::kE4M3) {
    accumulatePages<uint8_t>(kv, pages, kv_head, first, n, weights, weight_stride, group, out);
  } else {
    accumulatePages<uint16_t>(kv, pages, kv_head, first, n, weights, weight_stride, group, out);
  }
}

ALLOT_CLONES
void scaleRow(float* x, int head_dim, float factor) {
  for (int d = 0; d < head_dim; d += 16) at(x + d) = load(x + d) * factor;
}

const void* rowAddress(const PagedKv& kv, const void* pool, const int32_t* pages, int kv_head,
                       int position) {
  const int64_t offset =
      kv.offset(pages[position / kv.page_size], kv_head, position % kv.page_size);
  return static_cast<const char*>(pool) + offset * static_cast<int64_t>(bytesOf(kv.element));
}

}  // namespace allot::kernels
