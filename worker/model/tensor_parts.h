#pragma once
// Shapes and numbers of a model file's tensors. Pure functions, any thread. Private to
// worker/model/.
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace allot {

// Returns "[2, 3]".
inline std::string shapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

inline int64_t elementsOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

inline float halfToFloat(uint16_t half) {
  // Exact: exponents are rebiased by a product.
  const uint32_t sign = (half & 0x8000u) << 16, rest = (half & 0x7fffu) << 13;
  const float value = std::bit_cast<float>(rest) * 0x1p112f;
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u | (half & 0x3ffu) << 13 : 0;
  return std::bit_cast<float>(sign | (special ? special : std::bit_cast<uint32_t>(value)));
}

inline float bfloatToFloat(uint16_t upper) {
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

}  // namespace allot
