#include "worker/model/gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "worker/model/tensor_parts.h"

namespace allot {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const std::byte* from) { return halfToFloat(load<uint16_t>(from)); }

uint8_t byteAt(const std::byte* from, size_t i) { return static_cast<uint8_t>(from[i]); }

void decodeF32(const std::byte* block, float* out) { *out = load<float>(block); }
void decodeF16(const std::byte* block, float* out) { *out = half(block); }
void decodeBF16(const std::byte* block, float* out) { *out = bfloatToFloat(load<uint16_t>(block)); }

// The low nibbles are the block's first half.
void decodeQ4_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (size_t i = 0; i < 16; ++i) {
    const int byte = byteAt(block, 2 + i);
    out[i] = d * static_cast<float>((byte & 15) - 8);
    out[16 + i] = d * static_cast<float>((byte >> 4) - 8);
  }
}

void decodeQ4_1(const std::byte* block, float* out) {
  const float d = half(block), least = half(block + 2);
  for (size_t i = 0; i < 16; ++i) {
    const int byte = byteAt(block, 4 + i);
    out[i] = d * static_cast<float>(byte & 15) + least;
    out[16 + i] = d * static_cast<float>(byte >> 4) + least;
  }
}

// Decodes a block whose elements' fifth bits are one number of 32 bits, `high`.
void decodeFiveBits(const std::byte* high, const std::byte* low, float d, float least, float* out) {
  const auto bits = load<uint32_t>(high);
  for (size_t i = 0; i < 16; ++i) {
    const int byte = byteAt(low, i);
    const int first = (byte & 15) | static_cast<int>(bits >> i & 1) << 4;
    const int second = byte >> 4 | static_cast<int>(bits >> (i + 16) & 1) << 4;
    out[i] = d * static_cast<float>(first) + least;
    out[16 + i] = d * static_cast<float>(second) + least;
  }
}

void decodeQ5_0(const std::byte* block, float* out) {
  const float d = half(block);
  decodeFiveBits(block + 2, block + 6, d, -16 * d, out);
}

void decodeQ5_1(const std::byte* block, float* out) {
  decodeFiveBits(block + 4, block + 8, half(block), half(block + 2), out);
}

void decodeQ8_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(load<int8_t>(block + 2 + i));
}

// The scale and the minimum of one of 8 sub-blocks, of 6 bits each in 12 bytes.
struct SubBlock {
  float scale;
  float minimum;
};

SubBlock subBlockOf8(const std::byte* packed, size_t sub) {
  int scale, minimum;
  if (sub < 4) {
    scale = byteAt(packed, sub) & 63;
    minimum = byteAt(packed, sub + 4) & 63;
  } else {
    scale = (byteAt(packed, sub + 4) & 15) | (byteAt(packed, sub - 4) >> 6) << 4;
    minimum = byteAt(packed, sub + 4) >> 4 | (byteAt(packed, sub) >> 6) << 4;
  }
  return {static_cast<float>(scale), static_cast<float>(minimum)};
}

// 8 sub-blocks of 32; two of them share 32 bytes of nibbles.
void decodeQ4_K(const std::byte* block, float* out) {
  const float d = half(block), least = half(block + 2);
  for (size_t sub = 0; sub < 8; ++sub) {
    const SubBlock of = subBlockOf8(block + 4, sub);
    const std::byte* codes = block + 16 + sub / 2 * 32;
    for (size_t i = 0; i < 32; ++i) {
      const int code = byteAt(codes, i) >> (sub % 2 * 4) & 15;
      out[sub * 32 + i] = d * of.scale * static_cast<float>(code) - least * of.minimum;
    }
  }
}

// As Q4_K, with a fifth bit of each element: bit `sub` of 32 bytes in front of the nibbles.
void decodeQ5_K(const std::byte* block, float* out) {
  const float d = half(block), least = half(block + 2);
  for (size_t sub = 0; sub < 8; ++sub) {
    const SubBlock of = subBlockOf8(block + 4, sub);
    const std::byte* codes = block + 48 + sub / 2 * 32;
    for (size_t i = 0; i < 32; ++i) {
      const int low = byteAt(codes, i) >> (sub % 2 * 4) & 15;
      const int high = byteAt(block, 16 + i) >> sub & 1;
      out[sub * 32 + i] = d * of.scale * static_cast<float>(low | high << 4) - least * of.minimum;
    }
  }
}

// Returns the two bits of element i. 32 bytes hold 128 elements: each pair of bits 32 in a row.
int twoBitsOf(const std::byte* codes, size_t i) {
  return byteAt(codes, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}

// 16 sub-blocks of 16; a scale and a minimum of 4 bits each in one byte.
void decodeQ2_K(const std::byte* block, float* out) {
  const float d = half(block + 80), least = half(block + 82);
  for (size_t i = 0; i < 256; ++i) {
    const int packed = byteAt(block, i / 16);
    out[i] = d * static_cast<float>(packed & 15) * static_cast<float>(twoBitsOf(block + 16, i)) -
             least * static_cast<float>(packed >> 4);
  }
}

// 16 sub-blocks of 16. A third bit of each element is a bit of the first 32 bytes; if it is not
// set, 4 is subtracted. Scales have 6 bits in 12 bytes: four low ones in the first eight, two high
// ones in the last four.
void decodeQ3_K(const std::byte* block, float* out) {
  const float d = half(block + 108);
  const std::byte* scales = block + 96;
  for (size_t i = 0; i < 256; ++i) {
    const size_t sub = i / 16;
    const int low = byteAt(scales, sub % 8) >> (sub / 8 * 4) & 15;
    const int high = byteAt(scales, 8 + sub % 4) >> (sub / 4 * 2) & 3;
    const int third = byteAt(block, i % 32) >> (i / 32) & 1;
    const int code = twoBitsOf(block + 32, i) - (third == 1 ? 0 : 4);
    out[i] = d * static_cast<float>((low | high << 4) - 32) * static_cast<float>(code);
  }
}

// 16 sub-blocks of 16; four low bits and two high ones of each element.
void decodeQ6_K(const std::byte* block, float* out) {
  const float d = half(block + 208);
  for (size_t i = 0; i < 256; ++i) {
    const size_t part = i / 128, within = i % 128, quarter = within / 32, lane = within % 32;
    const int low = byteAt(block, part * 64 + quarter % 2 * 32 + lane) >> (quarter / 2 * 4) & 15;
    const int high = byteAt(block, 128 + part * 32 + lane) >> (quarter * 2) & 3;
    const int scale = load<int8_t>(block + 192 + i / 16);
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

// A thread gets some milliseconds of work, to be worth its start. Many would only wait for memory.
constexpr int64_t kElementsOfAThread = int64_t{1} << 20;
constexpr int64_t kThreads = 8;

constexpr BlockLayout kLayouts[] = {
    {GgmlType::kF32, "F32", 1, 4, decodeF32},
    {GgmlType::kF16, "F16", 1, 2, decodeF16},
    {GgmlType::kBF16, "BF16", 1, 2, decodeBF16},
    {GgmlType::kQ4_0, "Q4_0", 32, 18, decodeQ4_0},
    {GgmlType::kQ4_1, "Q4_1", 32, 20, decodeQ4_1},
    {GgmlType::kQ5_0, "Q5_0", 32, 22, decodeQ5_0},
    {GgmlType::kQ5_1, "Q5_1", 32, 24, decodeQ5_1},
    {GgmlType::kQ8_0, "Q8_0", 32, 34, decodeQ8_0},
    {GgmlType::kQ2_K, "Q2_K", 256, 84, decodeQ2_K},
    {GgmlType::kQ3_K, "Q3_K", 256, 110, decodeQ3_K},
    {GgmlType::kQ4_K, "Q4_K", 256, 144, decodeQ4_K},
    {GgmlType::kQ5_K, "Q5_K", 256, 176, decodeQ5_K},
    {GgmlType::kQ6_K, "Q6_K", 256, 210, decodeQ6_K},
};

}  // namespace

const BlockLayout* blockLayout(uint32_t type) {
  const auto* found =
      std::find_if(std::begin(kLayouts), std::end(kLayouts),
                   [&](const BlockLayout& l) { return static_cast<uint32_t>(l.type) == type; });
  return found == std::end(kLayouts) ? nullptr : found;
}

std::string blockTypesText() {
  std::string names;
  for (const BlockLayout& layout : kLayouts) {
    names += (names.empty() ? "" : ", ") + std::string(layout.name);
  }
  return names;
}

void toFloat(const GgufTensor& tensor, float* out) {
  const BlockLayout& layout = *blockLayout(static_cast<uint32_t>(tensor.type));
  const int64_t blocks = tensor.elements() / layout.elements;
  const auto decode = [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      layout.decode(tensor.data + static_cast<size_t>(i) * layout.bytes, out + i * layout.elements);
    }
  };
  const int64_t useful = std::clamp<int64_t>(tensor.elements() / kElementsOfAThread, 1, kThreads);
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, useful);
  std::vector<std::jthread> others;
  for (int64_t t = 1; t < threads; ++t) {
    others.emplace_back(decode, blocks * t / threads, blocks * (t + 1) / threads);
  }
  decode(0, blocks / threads);
}

}  // namespace allot
