#pragma once
// The paged KV cache of one layer, and the CPU's functions for it.
//
// A page holds page_size positions of every KV head. A cache may also hold shadows of the keys (3,
// 4 or 8 bits a channel, for methods that rank or propose keys), bounds (minimum and maximum of
// each channel over 16 keys, for quest), mean keys and running sums of values. appendKv() writes
// them with the keys; a decode step only reads.
//
// A cache of e4m3 numbers has a scale for the keys and one for the values of each KV head. The
// number that a code stands for is code * scale. Scales stay out of inner loops:
//   code = toE4M3(x / scale)                                  in float32
//   score = (DecodeInputs::scale * key_scale) * (q . codes)
//   output = value_scale * (the method's sum of weights * codes)
// Shadows, mean keys, bounds and sums of values are those of the codes. With scales that are powers
// of two, all methods give the bits of a float32 cache of the numbers code * scale.
//
// Pages are the caller's memory. Any thread; a page has one writer at a time, and none while others
// read it.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace allot::kernels {

// The type of a cache's numbers. float16 caches are for GPUs alone (cuda_decode.h), e4m3 ones for
// the CPU. e4m3 is the finite 8-bit format of machine learning: 4 bits of exponent, 3 of mantissa,
// from 2^-9 to 448, with NaN and without infinity.
enum class Element { kFloat32, kBFloat16, kFloat16, kE4M3 };
constexpr size_t bytesOf(Element element) {
  return element == Element::kFloat32 ? 4 : element == Element::kE4M3 ? 1 : 2;
}

// Positions in one tile of a shadow and of bounds.
constexpr int kTileKeys = 16;

// Keys quantised to `bits` (3, 4 or 8) bits a channel: k~ = mean_key + scale * code, code in
// -(2^(bits-1) - 1) .. 2^(bits-1) - 1. A key has one scale; a sequence and KV head have one mean
// key. The mean key adds one constant to all scores of a query, which softmax ignores: scores from
// the shadow leave the mean key out.
struct KeyShadow {
  int bits = 0;              // 0: no shadow
  uint8_t* codes = nullptr;  // [pages, kv_heads, page_size / 16, tileBytes(head_dim)]
  float* scales = nullptr;   // [pages, kv_heads, page_size]

  // Returns the bytes of 16 keys' codes.
  size_t tileBytes(int head_dim) const { return static_cast<size_t>(head_dim) * 2 * bits; }
};

// The cache of one layer. Arrays are the caller's.
struct PagedKv {
  Element element = Element::kFloat32;
  void* keys = nullptr;    // [pages, kv_heads, page_size, head_dim] of `element`
  void* values = nullptr;  // as keys
  int64_t pages = 0;
  int kv_heads = 0;
  int page_size = 0;  // a multiple of 16 with shadows or bounds
  int head_dim = 0;   // a multiple of 16, at most 1024
  // [kv_heads] each, or null: 1.0. For e4m3 alone; finite and above 0.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;

  KeyShadow shadows[3];  // valid if bits > 0
  // [pages, kv_heads, head_dim] or null: a sequence's mean key is at its first page. Null: 0.
  float* mean_keys = nullptr;
  // [pages, kv_heads, page_size / 16, 2, head_dim] of `element`, or null: minima, maxima.
  void* bounds = nullptr;
  // [pages, kv_heads, 2, head_dim] or null: the sum of a sequence's values over its positions 0 ..
  // p is at [p % 2] of p's page if p is the newest position, the position before the newest, or the
  // last position of a page. A sum is one chain of additions of the cache's elements in order of
  // positions: neither the page size nor the size of an append changes a bit. The newest position
  // may be appended again.
  double* value_sums = nullptr;

  // Returns where a position's vector begins, in elements.
  int64_t offset(int64_t page, int kv_head, int slot) const {
    return ((page * kv_heads + kv_head) * page_size + slot) * head_dim;
  }
  float keyScale(int kv_head) const { return key_scales ? key_scales[kv_head] : 1.0f; }
  float valueScale(int kv_head) const { return value_scales ? value_scales[kv_head] : 1.0f; }
  // Returns the shadow of that many bits, or null.
  const KeyShadow* shadow(int bits) const {
    for (const KeyShadow& shadow : shadows) {
      if (bits > 0 && shadow.bits == bits) return &shadow;
    }
    return nullptr;
  }
};

// Return the bytes that one page of one layer needs for a shadow or for bounds.
size_t shadowBytesPerPage(int bits, int kv_heads, int page_size, int head_dim);
size_t boundsBytesPerPage(Element element, int kv_heads, int page_size, int head_dim);

// `count` new keys and values for each row.
struct AppendInputs {
  const float* keys = nullptr;          // [rows, count, kv_heads, head_dim]
  const float* values = nullptr;        // [rows, count, kv_heads, head_dim]
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* starts = nullptr;      // [rows] positions of the first new keys
  int rows = 0;
  int count = 0;
  int max_pages = 0;
  // Or null, added to: the numbers beyond +-464 times their scale, which no e4m3 number is nearest
  // to. They are written as +-448. On the CPU alone.
  uint64_t* saturated = nullptr;
};

// Writes keys and values, with the shadows, bounds and sums of values that the cache holds. An
// append that starts at position 0 sets the sequence's mean key, to the mean of the keys appended.
// Returns nothing, or one sentence, and writes nothing then. Refuses a number that is not finite in
// the cache's type (the sentence names keys or values, row, head and position), a start below 0, a
// position beyond the page table, a page outside the pool, and a float16 cache.
// Requires: positions are appended in order; no page of an append is shared by two sequences.
[[nodiscard]] std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in);

// The rows of meanValues().
struct MeanInputs {
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* lengths = nullptr;     // [rows]
  int rows = 0;
  int max_pages = 0;
};
// Writes means [rows, kv_heads, head_dim]: the mean of all values of a sequence, by KV head; zeros
// for an empty one. Reads value_sums and no value. A sliding window does not change this mean.
// Requires: value_sums holds the sum at each row's last position; pages are in the pool.
void meanValues(const PagedKv& kv, const MeanInputs& in, float* means);

// Copies page `from` to page `to`: keys, values, shadows, mean key, bounds and sums of values.
void copyPage(const PagedKv& kv, int64_t from, int64_t to);

// Convert float32 to bfloat16, rounding to nearest even, and back.
uint16_t toBFloat16(float value);
float fromBFloat16(uint16_t bits);

// Convert float32 to e4m3, rounding to nearest even, and back. Numbers beyond +-448 become +-448.
uint8_t toE4M3(float value);
float fromE4M3(uint8_t code);

}  // namespace allot::kernels
