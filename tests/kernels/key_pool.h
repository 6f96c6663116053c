#pragma once
// A paged KV cache of one layer with everything a cache may hold, poisoned: whatever is read
// without having been written shows.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels {

// Appends keys and values [count, kv_heads, head_dim] of one sequence.
inline std::optional<std::string> appendRow(const PagedKv& kv, const int32_t* pages, int max_pages,
                                            int32_t start, int count, const float* keys,
                                            const float* values) {
  return appendKv(kv, {keys, values, pages, &start, 1, count, max_pages});
}

inline std::vector<float> normals(size_t count, uint64_t seed, float scale = 1.0f) {
  std::mt19937_64 random(seed);
  // A distribution refuses the deviation 0.
  std::normal_distribution<float> normal;
  std::vector<float> list(count);
  for (float& value : list) value = normal(random) * scale;
  return list;
}

struct KeyPool {
  struct Shape {
    Element element = Element::kBFloat16;
    int pages = 8;
    int kv_heads = 2;
    int page_size = 16;
    int head_dim = 64;
  };

  explicit KeyPool(Shape shape, uint64_t seed = 1) {
    const size_t numbers =
        static_cast<size_t>(shape.pages) * shape.kv_heads * shape.page_size * shape.head_dim;
    const size_t positions = numbers / shape.head_dim;
    keys.assign(numbers * bytesOf(shape.element), 0xff);  // NaN in each format
    values = keys;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    mean_keys.assign(static_cast<size_t>(shape.pages) * shape.kv_heads * shape.head_dim, nan);
    kv.element = shape.element;
    kv.pages = shape.pages;
    kv.kv_heads = shape.kv_heads;
    kv.page_size = shape.page_size;
    kv.head_dim = shape.head_dim;
    if (shape.page_size % kTileKeys == 0) {
      bounds.assign(numbers / kTileKeys * 2 * bytesOf(shape.element), 0xff);
      const int bits[] = {3, 4, 8};
      for (int i = 0; i < 3; ++i) {
        kv.shadows[i].bits = bits[i];
        codes[i].assign(positions / kTileKeys * kv.shadows[i].tileBytes(shape.head_dim), 0xff);
        scales[i].assign(positions, nan);
      }
    }
    table.resize(shape.pages);
    std::iota(table.begin(), table.end(), 0);
    std::mt19937_64 order(seed);
    std::shuffle(table.begin(), table.end(), order);
    point();
  }
  KeyPool(const KeyPool& other) { *this = other; }
  KeyPool& operator=(const KeyPool& other) {
    if (this == &other) return *this;
    kv = other.kv;
    keys = other.keys, values = other.values, mean_keys = other.mean_keys, bounds = other.bounds;
    std::copy_n(other.codes, 3, codes);
    std::copy_n(other.scales, 3, scales);
    table = other.table;
    point();
    return *this;
  }
  bool operator==(const KeyPool& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
    };
    for (int i = 0; i < 3; ++i) {
      if (codes[i] != other.codes[i] || !same(scales[i], other.scales[i])) return false;
    }
    return keys == other.keys && values == other.values && bounds == other.bounds &&
           same(mean_keys, other.mean_keys);
  }

  // Keys and values [count, kv_heads, head_dim] of one sequence whose pages are `table`.
  std::optional<std::string> append(int start, int count, const float* new_keys,
                                    const float* new_values) {
    return appendRow(kv, table.data(), static_cast<int>(table.size()), start, count, new_keys,
                     new_values);
  }

  // In elements.
  int64_t offset(int kv_head, int j) const {
    return kv.offset(table[j / kv.page_size], kv_head, j % kv.page_size);
  }
  float key(int kv_head, int j, int d) const { return number(keys, offset(kv_head, j) + d); }
  float value(int kv_head, int j, int d) const { return number(values, offset(kv_head, j) + d); }
  // What the cache says of the keys of j's tile.
  float least(int kv_head, int j, int d) const { return number(bounds, boundsAt(kv_head, j) + d); }
  float most(int kv_head, int j, int d) const {
    return number(bounds, boundsAt(kv_head, j) + kv.head_dim + d);
  }
  int64_t boundsAt(int kv_head, int j) const {
    return kv.offset(table[j / kv.page_size], kv_head, j % kv.page_size / kTileKeys * kTileKeys) /
           kTileKeys * 2;
  }
  const float* mean_key(int kv_head) const {
    return mean_keys.data() + (table[0] * kv.kv_heads + kv_head) * kv.head_dim;
  }
  float scale(int shadow, int kv_head, int j) const {
    return scales[shadow][offset(kv_head, j) / kv.head_dim];
  }

  PagedKv kv;
  std::vector<uint8_t> keys, values, codes[3], bounds;
  std::vector<float> scales[3], mean_keys;
  std::vector<int32_t> table;

 private:
  void point() {
    kv.keys = keys.data();
    kv.values = values.data();
    kv.mean_keys = mean_keys.data();
    kv.bounds = bounds.empty() ? nullptr : bounds.data();
    for (int i = 0; i < 3; ++i) {
      kv.shadows[i].codes = codes[i].data();
      kv.shadows[i].scales = scales[i].data();
    }
  }
  float number(const std::vector<uint8_t>& pool, int64_t at) const {
    if (kv.element == Element::kFloat32) {
      float value;
      std::memcpy(&value, pool.data() + at * 4, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, pool.data() + at * 2, 2);
    return fromBFloat16(bits);
  }
};

}  // namespace allot::kernels
