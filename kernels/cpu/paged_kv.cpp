#include "allot/kernels/paged_kv.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/key_scores.h"
#include "kernels/cpu/value_sums.h"

namespace allot::kernels {
namespace {

// Rounds a float that is not NaN to bfloat16, to nearest even.
inline uint16_t rounded(uint32_t bits) {
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Returns true if all `count` values are finite as elements of the cache. `limit` is the least
// magnitude that is not: infinity, or half a step above the largest bfloat16, which rounds to it.
// e4m3 has no infinity to round to.
bool holdsAll(Element element, const float* values, int count) {
  const int32_t limit = element == Element::kBFloat16 ? 0x7f7f8000 : 0x7f800000;
  int32_t bad = 0;
  for (int i = 0; i < count; ++i) {
    bad |= (std::bit_cast<int32_t>(values[i]) & 0x7fffffff) >= limit;
  }
  return bad == 0;
}

constexpr float kLargestE4M3 = 448, kBeyondE4M3 = 464;  // half a step further, a tie

// Returns how many of the values were saturated.
uint64_t storeCodes(uint8_t* to, const float* values, int count, float scale) {
  uint64_t saturated = 0;
  for (int i = 0; i < count; ++i) {
    const float x = values[i] / scale;
    saturated += std::fabs(x) > kBeyondE4M3 ? 1 : 0;
    to[i] = toE4M3(x);
  }
  return saturated;
}

// Writes values to a cache that is not of e4m3 numbers.
void store(Element element, void* pool, int64_t offset, const float* values, int count) {
  if (element == Element::kFloat32) {
    std::copy_n(values, count, static_cast<float*>(pool) + offset);
  } else {
    uint16_t* to = static_cast<uint16_t*>(pool) + offset;
    for (int i = 0; i < count; ++i) to[i] = rounded(std::bit_cast<uint32_t>(values[i]));
  }
}

// One call of appendKv: what its loops share.
class Append {
 public:
  Append(const PagedKv& kv, const AppendInputs& in) : kv_(kv), in_(in) {}

  std::optional<std::string> check(int row) const {
    const int64_t start = in_.starts[row];
    const int64_t end = start + in_.count;
    const std::string name = "row " + std::to_string(row);
    if (start < 0) return "starts: " + name + " starts at " + std::to_string(start);
    if (end > static_cast<int64_t>(in_.max_pages) * kv_.page_size) {
      return "page_table: " + name + " ends at position " + std::to_string(end) + ", beyond its " +
             std::to_string(in_.max_pages) + " pages of " + std::to_string(kv_.page_size);
    }
    // The first page, too, which has the sequence's mean key, and the page with the newest sum of
    // values.
    const int64_t oldest = kv_.value_sums && start > 0 ? start - 1 : start;
    for (int64_t i = 0; i * kv_.page_size < end; ++i) {
      if (i > 0 && (i + 1) * kv_.page_size <= oldest) continue;
      if (pages(row)[i] < 0 || pages(row)[i] >= kv_.pages) {
        return "page_table: " + name + ", entry " + std::to_string(i) + " is page " +
               std::to_string(pages(row)[i]) + ", outside the pool of " + std::to_string(kv_.pages);
      }
    }
    if (auto wrong = checkFinite("keys", in_.keys, row)) return wrong;
    return checkFinite("values", in_.values, row);
  }

  void write(int row) const {
    const int start = in_.starts[row];
    for (int head = 0; head < kv_.kv_heads; ++head) {
      for (int i = 0; i < in_.count; ++i) {
        const int64_t to = offset(row, head, start + i);
        put(kv_.keys, to, at(in_.keys, row, i, head), kv_.keyScale(head));
        put(kv_.values, to, at(in_.values, row, i, head), kv_.valueScale(head));
      }
      if (start == 0 && in_.count > 0 && kv_.mean_keys) setMeanKey(row, head);
      for (const KeyShadow& shadow : kv_.shadows) {
        if (shadow.bits > 0) writeShadow(shadow, kv_, pages(row), head, start, in_.count);
      }
      if (kv_.bounds && kv_.element == Element::kFloat32) extendBounds<float>(row, head);
      if (kv_.bounds && kv_.element == Element::kBFloat16) extendBounds<uint16_t>(row, head);
      if (kv_.bounds && kv_.element == Element::kE4M3) extendBounds<uint8_t>(row, head);
      if (kv_.value_sums) appendValueSums(kv_, pages(row), head, start, in_.count);
    }
  }

 private:
  void put(void* pool, int64_t offset, const float* values, float scale) const {
    if (kv_.element != Element::kE4M3) {
      return store(kv_.element, pool, offset, values, kv_.head_dim);
    }
    const uint64_t saturated =
        storeCodes(static_cast<uint8_t*>(pool) + offset, values, kv_.head_dim, scale);
    if (in_.saturated) *in_.saturated += saturated;
  }
  const int32_t* pages(int row) const {
    return in_.page_table + static_cast<int64_t>(row) * in_.max_pages;
  }
  int64_t offset(int row, int head, int position) const {
    return kv_.offset(pages(row)[position / kv_.page_size], head, position % kv_.page_size);
  }
  const float* at(const float* tensor, int row, int i, int head) const {
    return tensor +
           ((static_cast<int64_t>(row) * in_.count + i) * kv_.kv_heads + head) * kv_.head_dim;
  }

  std::optional<std::string> checkFinite(const char* name, const float* tensor, int row) const {
    for (int i = 0; i < in_.count; ++i) {
      for (int head = 0; head < kv_.kv_heads; ++head) {
        if (holdsAll(kv_.element, at(tensor, row, i, head), kv_.head_dim)) continue;
        return std::string(name) + " of row " + std::to_string(row) + ", KV head " +
               std::to_string(head) + ", position " + std::to_string(in_.starts[row] + i) +
               ": a number that is not finite" +
               (kv_.element == Element::kBFloat16 ? " in bfloat16" : "");
      }
    }
    return std::nullopt;
  }

  // Averages the keys as the cache holds them, so that a shadow is a function of the cache alone.
  void setMeanKey(int row, int head) const {
    float* mean_key =
        kv_.mean_keys + (static_cast<int64_t>(pages(row)[0]) * kv_.kv_heads + head) * kv_.head_dim;
    double totals[kMaxHeadDim] = {};
    for (int i = 0; i < in_.count; ++i) {
      const int64_t from = offset(row, head, i);
      for (int d = 0; d < kv_.head_dim; ++d) totals[d] += keyAt(kv_, from + d);
    }
    for (int d = 0; d < kv_.head_dim; ++d) {
      mean_key[d] = static_cast<float>(totals[d] / in_.count);
    }
  }

  static float numberOf(float element) { return element; }
  static float numberOf(uint16_t element) { return fromBFloat16(element); }
  static float numberOf(uint8_t element) { return fromE4M3(element); }

  template <typename T>
  void extendBounds(int row, int head) const {
    for (int i = 0; i < in_.count; ++i) {
      const int position = in_.starts[row] + i;
      const int64_t from = offset(row, head, position);
      const T* key = static_cast<const T*>(kv_.keys) + from;
      T* low = static_cast<T*>(kv_.bounds) + from / kv_.head_dim / kTileKeys * 2 * kv_.head_dim;
      T* high = low + kv_.head_dim;
      // The first key of a tile replaces the bounds that an earlier sequence left in the page.
      const bool first = position % kTileKeys == 0;
      for (int d = 0; d < kv_.head_dim; ++d) {
        const float x = numberOf(key[d]);
        if (first || x < numberOf(low[d])) low[d] = key[d];
        if (first || x > numberOf(high[d])) high[d] = key[d];
      }
    }
  }

  const PagedKv& kv_;
  const AppendInputs& in_;
};

}  // namespace

uint16_t toBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // A NaN whose payload is cut off would be infinity.
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return rounded(bits);
}

float fromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint8_t toE4M3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7f;
  if (magnitude >= kLargestE4M3) return sign | 0x7e;
  if (magnitude < 0x1p-6f) {
    // Steps of 2^-9, as those of a float from 2^14 on: the addition rounds.
    const float lifted = magnitude + 0x1p14f;
    return static_cast<uint8_t>(
        sign | (std::bit_cast<uint32_t>(lifted) - std::bit_cast<uint32_t>(0x1p14f)));
  }
  // Exponents differ by 120. A carry out of the mantissa raises the exponent.
  const uint32_t word = bits & 0x7fffffff;
  return static_cast<uint8_t>(sign | (((word + 0x7ffff + (word >> 20 & 1)) >> 20) - (120u << 3)));
}

float fromE4M3(uint8_t code) {
  static constexpr std::array<float, 256> kNumbers = [] {
    std::array<float, 256> numbers{};
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t exponent = i >> 3 & 15, mantissa = i & 7;
      const bool small = exponent == 0;
      float number = static_cast<float>(small ? mantissa : 8 + mantissa) / 8;
      for (uint32_t e = small ? 1 : exponent; e < 7; ++e) number /= 2;
      for (uint32_t e = exponent; e > 7; --e) number *= 2;
      if ((i & 0x7f) == 0x7f) number = std::numeric_limits<float>::quiet_NaN();
      numbers[i] = i < 128 ? number : -number;
    }
    return numbers;
  }();
  return kNumbers[code];
}

size_t shadowBytesPerPage(int bits, int kv_heads, int page_size, int head_dim) {
  const KeyShadow shadow{.bits = bits};
  const size_t tiles = static_cast<size_t>(kv_heads) * (page_size / kTileKeys);
  return tiles * (shadow.tileBytes(head_dim) + kTileKeys * sizeof(float));
}

size_t boundsBytesPerPage(Element element, int kv_heads, int page_size, int head_dim) {
  const size_t tiles = static_cast<size_t>(kv_heads) * (page_size / kTileKeys);
  return tiles * 2 * head_dim * bytesOf(element);
}

std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in) {
  assert(kv.page_size > 0 && kv.head_dim % 16 == 0 && kv.head_dim <= kMaxHeadDim);
  if (kv.element == Element::kFloat16) return "the CPU writes no float16 cache";
  const Append append(kv, in);
  for (int row = 0; row < in.rows; ++row) {
    if (auto wrong = append.check(row)) return wrong;
  }
  for (int row = 0; row < in.rows; ++row) append.write(row);
  return std::nullopt;
}

void copyPage(const PagedKv& kv, int64_t from, int64_t to) {
  if (from == to) return;
  const auto copy = [&](void* base, size_t page_bytes) {
    if (!base) return;
    auto* bytes = static_cast<uint8_t*>(base);
    std::memcpy(bytes + to * page_bytes, bytes + from * page_bytes, page_bytes);
  };
  const size_t positions = static_cast<size_t>(kv.kv_heads) * kv.page_size;
  const size_t tiles = positions / kTileKeys;
  copy(kv.keys, positions * kv.head_dim * bytesOf(kv.element));
  copy(kv.values, positions * kv.head_dim * bytesOf(kv.element));
  for (const KeyShadow& shadow : kv.shadows) {
    if (shadow.bits == 0) continue;
    copy(shadow.codes, tiles * shadow.tileBytes(kv.head_dim));
    copy(shadow.scales, positions * sizeof(float));
  }
  copy(kv.mean_keys, static_cast<size_t>(kv.kv_heads) * kv.head_dim * sizeof(float));
  copy(kv.bounds, tiles * 2 * kv.head_dim * bytesOf(kv.element));
  copy(kv.value_sums, static_cast<size_t>(kv.kv_heads) * 2 * kv.head_dim * sizeof(double));
}

}  // namespace allot::kernels
