#include "kernels/cpu/value_sums.h"

#include <algorithm>

#include "kernels/cpu/key_scores.h"

namespace allot::kernels {

void addValues(const PagedKv& kv, const int32_t* pages, int kv_head, int from, int to,
               double* sums) {
  for (int j = from; j < to; ++j) {
    const int64_t at = kv.offset(pages[j / kv.page_size], kv_head, j % kv.page_size);
    if (kv.element == Element::kFloat32) {
      const float* value = static_cast<const float*>(kv.values) + at;
      for (int d = 0; d < kv.head_dim; ++d) sums[d] += value[d];
    } else if (kv.element == Element::kE4M3) {
      const uint8_t* value = static_cast<const uint8_t*>(kv.values) + at;
      for (int d = 0; d < kv.head_dim; ++d) sums[d] += fromE4M3(value[d]);
    } else {
      const uint16_t* value = static_cast<const uint16_t*>(kv.values) + at;
      for (int d = 0; d < kv.head_dim; ++d) sums[d] += fromBFloat16(value[d]);
    }
  }
}

double* valueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int position) {
  const int64_t page = pages[position / kv.page_size];
  return kv.value_sums + ((page * kv.kv_heads + kv_head) * 2 + position % 2) * kv.head_dim;
}

void appendValueSums(const PagedKv& kv, const int32_t* pages, int kv_head, int start, int count) {
  double sums[kMaxHeadDim] = {};
  if (start > 0) std::copy_n(valueSums(kv, pages, kv_head, start - 1), kv.head_dim, sums);
  const int end = start + count;
  for (int j = start; j < end; ++j) {
    addValues(kv, pages, kv_head, j, j + 1, sums);
    if (j < end - 2 && (j + 1) % kv.page_size != 0) continue;
    std::copy_n(sums, kv.head_dim, valueSums(kv, pages, kv_head, j));
  }
}

void meanValues(const PagedKv& kv, const MeanInputs& in, float* means) {
  for (int row = 0; row < in.rows; ++row) {
    const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
    const int n = in.lengths[row];
    for (int head = 0; head < kv.kv_heads; ++head, means += kv.head_dim) {
      if (n <= 0) {
        std::fill_n(means, kv.head_dim, 0.0f);
        continue;
      }
      const double* sums = valueSums(kv, pages, head, n - 1);
      for (int d = 0; d < kv.head_dim; ++d) {
        means[d] = static_cast<float>(sums[d] / n) * kv.valueScale(head);
      }
    }
  }
}

}  // namespace allot::kernels
