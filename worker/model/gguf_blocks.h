#pragma once
// The tensor types of GGUF files that are read: how a block of elements lies in the file, and what
// its numbers are. Constants and pure functions, any thread. Private to worker/model/.
//
// Layouts: ggml's block_q*, as published with llama.cpp (ggml-common.h).
#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/model/gguf.h"

namespace allot {

struct BlockLayout {
  GgmlType type;
  const char* name;
  int64_t elements;  // of a block; rows are whole blocks
  size_t bytes;
  void (*decode)(const std::byte* block, float* out);  // exact but for rounding to float32
};

// Null for a type that is not read.
const BlockLayout* blockLayout(uint32_t type);

// "F32, F16, ...": what is read.
std::string blockTypesText();

}  // namespace allot
