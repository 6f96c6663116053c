#pragma once
// Where a caller's arrays may begin. Kernels load 16 bytes at once of queries and of what a cache
// holds of each key, and a prefill writes 8; at other addresses the GPU faults, and then CUDA is at
// an end in the whole process. All else is read and written element by element: it may begin
// wherever its type may. Private to kernels/cuda; host, any thread, without CUDA.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/kernels/paged_kv.h"

namespace allot::kernels::cuda {

// One sentence about the first array that begins elsewhere, if one does; null is none.
inline std::optional<std::string> misaligned(const PagedKv& kv, const float* queries = nullptr,
                                             const float* prefill_out = nullptr) {
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
                {prefill_out, "outputs", 8}};
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
