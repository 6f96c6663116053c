#pragma once
// The paged KV cache of one layer, and how keys and values get into it.
//
// A page holds page_size positions of every KV head. Beside the keys a cache may hold their
// shadows (the same keys in 3, 4 or 8 bits, for methods that rank or propose keys) and their bounds
// (smallest and largest of each channel over 16 keys, for quest); all are written when keys are
// appended, so that a step reads them only. Pages are borrowed memory; nothing here allocates.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace allot::kernels {

// float16 caches are the GPU's alone (cuda_decode.h).
enum class Element { kFloat32, kBFloat16, kFloat16 };
constexpr size_t bytesOf(Element element) { return element == Element::kFloat32 ? 4 : 2; }

// Keys of a shadow and of bounds come in tiles of this many positions.
constexpr int kTileKeys = 16;

// Keys quantised to `bits` (3, 4 or 8) bits a channel: k~ = centre + scale * code, code in
// -(2^(bits-1) - 1) .. 2^(bits-1) - 1, one scale a key, the centre one vector a sequence and KV
// head. A centre adds the same to every score of a query, which a softmax does not see: scores from
// the shadow leave it out.
struct KeyShadow {
  int bits = 0;              // 0: no shadow
  uint8_t* codes = nullptr;  // [pages, kv_heads, page_size / 16, tileBytes(head_dim)]
  float* scales = nullptr;   // [pages, kv_heads, page_size]

  // Codes of 16 keys.
  size_t tileBytes(int head_dim) const { return static_cast<size_t>(head_dim) * 2 * bits; }
};

struct PagedKv {
  Element element = Element::kFloat32;
  void* keys = nullptr;    // [pages, kv_heads, page_size, head_dim] of `element`
  void* values = nullptr;  // the same
  int64_t pages = 0;
  int kv_heads = 0;
  int page_size = 0;  // a multiple of 16 where there are shadows or bounds
  int head_dim = 0;   // a multiple of 16, at most 1024

  KeyShadow shadows[3];        // those with bits > 0
  float* mean_keys = nullptr;  // [pages, kv_heads, head_dim]: a sequence's is in its first page
  void* bounds = nullptr;  // [pages, kv_heads, page_size / 16, 2, head_dim] of `element`: min, max
  // [pages, kv_heads, 2, head_dim]: the sum of a sequence's values over its positions 0 .. p is at
  // [p % 2] of p's page if p is the newest position, the one before it or the last of its page. Of
  // the values as the cache has them, one chain of additions in the order of the positions: neither
  // the page size nor how many were appended at once changes a bit. The newest position may be
  // appended again.
  double* value_sums = nullptr;

  // In elements.
  int64_t offset(int64_t page, int kv_head, int slot) const {
    return ((page * kv_heads + kv_head) * page_size + slot) * head_dim;
  }
  const KeyShadow* shadow(int bits) const {
    for (const KeyShadow& shadow : shadows) {
      if (bits > 0 && shadow.bits == bits) return &shadow;
    }
    return nullptr;
  }
};

// What one page of one layer needs beside its keys and values, in bytes.
size_t shadowBytesPerPage(int bits, int kv_heads, int page_size, int head_dim);
size_t boundsBytesPerPage(Element element, int kv_heads, int page_size, int head_dim);

// `count` new keys and values a row, [rows, count, kv_heads, head_dim] each.
struct AppendInputs {
  const float* keys = nullptr;
  const float* values = nullptr;
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* starts = nullptr;      // [rows], the position of the first new key
  int rows = 0;
  int count = 0;
  int max_pages = 0;
};

// Writes them, with the shadows, bounds and sums of values that the cache holds. The append that
// starts at position 0 sets the sequence's centre: the mean of its keys. Positions are appended in
// order, and a page that is shared by two sequences is only read. Returns nothing if all is well;
// else one sentence, and nothing is written: a value that is not finite (the sentence names keys or
// values, row, head and position; bfloat16 overflow counts), a position beyond the page table, a
// page outside the pool. Any thread, one caller a page.
[[nodiscard]] std::optional<std::string> appendKv(const PagedKv& kv, const AppendInputs& in);

// means [rows, kv_heads, head_dim]: the mean of all values of a sequence, of each KV head, from
// value_sums and so without reading a value; zeros where there are none. A sliding window leaves
// out keys and values of attention, not of this mean.
struct MeanInputs {
  const int32_t* page_table = nullptr;  // [rows, max_pages]
  const int32_t* lengths = nullptr;     // [rows]
  int rows = 0;
  int max_pages = 0;
};
void meanValues(const PagedKv& kv, const MeanInputs& in, float* means);

// Copies one page with all that belongs to it.
void copyPage(const PagedKv& kv, int64_t from, int64_t to);

// bfloat16, round to nearest even.
uint16_t toBFloat16(float value);
float fromBFloat16(uint16_t bits);

}  // namespace allot::kernels
