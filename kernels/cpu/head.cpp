// Reads of single keys and values for methods.

#include "kernels/cpu/elements.h"
#include "kernels/cpu/methods.h"
#include "kernels/cpu/values.h"

namespace allot::kernels {
namespace {

// Adds in the order of key_scores.cpp, so that scores are equal to the bit.
template <typename T>
ALLOT_INLINE float dotAs(const float* query, const void* key, int head_dim) {
  const T* row = static_cast<const T*>(key);
  Float16 product = load(query) * loadElements(row);
  for (int d = 16; d < head_dim; d += 16) product += load(query + d) * loadElements(row + d);
  return sum(product);
}

ALLOT_CLONES
float dot(Element element, const float* query, const void* key, int head_dim) {
  if (element == Element::kFloat32) return dotAs<float>(query, key, head_dim);
  if (element == Element::kE4M3) return dotAs<uint8_t>(query, key, head_dim);
  return dotAs<uint16_t>(query, key, head_dim);
}

template <typename T>
double distanceAs(const void* value, const float* centre, int head_dim) {
  const T* row = static_cast<const T*>(value);
  double distance = 0;
  for (int d = 0; d < head_dim; d += 16) {
    const Float16 x = loadElements(row + d);
    for (int i = 0; i < 16; ++i) {
      const double gap = static_cast<double>(x[i]) - (centre ? centre[d + i] : 0.0f);
      distance += gap * gap;
    }
  }
  return distance;
}

}  // namespace

float Head::exactScore(int j) const {
  const void* key = rowAddress(*kv, kv->keys, pages, kv_head, j);
  const float score = scale * dot(kv->element, query, key, kv->head_dim);
  return bias ? score + bias[j] : score;
}

void Head::addValue(int j, float weight, float* out) const {
  const void* row = rowAddress(*kv, kv->values, pages, kv_head, j);
  gatherValues(&row, &weight, 1, kv->element, kv->head_dim, out);
}

double Head::valueDistance(int j, const float* centre) const {
  const void* row = rowAddress(*kv, kv->values, pages, kv_head, j);
  const auto distance =
      byElement(kv->element, distanceAs<float>, distanceAs<uint16_t>, distanceAs<uint8_t>);
  return distance(row, centre, kv->head_dim);
}

void Selection::clear() {
  rows.clear();
  weights.clear();
  counts.clear();
  draws = key_rows = extra_key_bytes = extra_value_rows = 0;
  finite_population = 1;
  error_known = true;
  error_centre = ErrorCentre::kOutput;
  mean_weight = 0;
  lse = 0;
  sets_lse = false;
}

}  // namespace allot::kernels
