#pragma once
// The alignment of a caller's arrays. Kernels load 16 bytes at once of queries and of a cache's
// keys, values, codes, scales and bounds, and a prefill writes 8 at once, 16 of bfloat16 outputs.
// At addresses that are no such multiples the GPU faults, after which CUDA fails in the whole
// process. Other arrays are accessed element by element. Private to kernels/cuda; host, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels::cuda {

// Returns one sentence about the first misaligned array, or nothing. Null pointers are aligned. Of
// the shadows only the 4-bit one is checked.
inline std::optional<std::string> misaligned(const PagedKv& kv, const void* queries = nullptr,
                                             const float* prefill_out = nullptr,
                                             const void* prefill_rounded = nullptr) {
  const KeyShadow* const shadow = kv.shadow(4);
  const struct {
    const void* begin;
    const char* name;
    uintptr_t multiple = 16;
  } arrays[] = {{queries, "queries"},
                {kv.keys, "the cache's keys"},
                {kv.values, "the cache's values"},
                {shadow ? shadow->codes : nullptr, "the cache's codes"},
                {shadow ? shadow->scales : nullptr, "the cache's scales"},
                {kv.bounds, "the cache's bounds"},
                {prefill_out, "outputs", 8},
                {prefill_rounded, "outputs"}};
  for (const auto& array : arrays) {
    if (reinterpret_cast<uintptr_t>(array.begin) % array.multiple != 0) {
      return std::string("the data of ") + array.name +
             " begin at an address that is no multiple of " + std::to_string(array.multiple) +
             ", where the GPU cannot take them: pass a copy";
    }
  }
  return std::nullopt;
}

}  // namespace allot::kernels::cuda
