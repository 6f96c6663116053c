#include "worker/model/attended_layer.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace allot {
namespace {

float toFloat(float element) { return element; }
float toFloat(uint16_t element) { return kernels::fromBFloat16(element); }

// Adds up in sixteen lanes, which a compiler can vectorise. width: a multiple of 16.
template <typename T>
float dot(const float* a, const T* b, int width) {
  std::array<float, 16> sums{};
  for (int i = 0; i < width; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sums[lane] += a[i + lane] * toFloat(b[i + lane]);
  }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

// For keys of type T in the pool.
template <typename T>
void exactScoresOf(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                   std::vector<float>* scores) {
  const auto* keys = static_cast<const T*>(kv.keys);
  const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
  const float* query = in.queries + (static_cast<int64_t>(row) * in.heads + head) * kv.head_dim;
  const int kv_head = head / (in.heads / kv.kv_heads);
  const int first = in.first(in.lengths[row]);
  scores->resize(static_cast<size_t>(in.lengths[row] - first));
  for (int j = first; j < in.lengths[row]; ++j) {
    const int64_t key = kv.offset(pages[j / kv.page_size], kv_head, j % kv.page_size);
    (*scores)[static_cast<size_t>(j - first)] = in.scale * dot(query, keys + key, kv.head_dim);
  }
}

}  // namespace

void exactScores(const kernels::PagedKv& kv, const kernels::DecodeInputs& in, int row, int head,
                 std::vector<float>* scores) {
  if (kv.element == kernels::Element::kFloat32) {
    exactScoresOf<float>(kv, in, row, head, scores);
  } else {
    assert(kv.element == kernels::Element::kBFloat16);
    exactScoresOf<uint16_t>(kv, in, row, head, scores);
  }
}

std::vector<double> tileSums(std::span<const float> scores, uint32_t tile) {
  const float top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> masses((scores.size() + tile - 1) / tile);
  for (size_t j = 0; j < scores.size(); ++j) masses[j / tile] += std::exp(scores[j] - top);
  return masses;
}

}  // namespace allot
