#pragma once
// The supported tensor types of GGUF files: the layout of a block in the file and its decoding.
// Constants and pure functions, any thread. Private to worker/model/.
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
  void (*decode)(const std::byte* block, float* out);  // exact except for rounding to float32
};

// Returns null for an unsupported type.
const BlockLayout* blockLayout(uint32_t type);

// Returns the names of the supported types, "F32, F16, ...".
std::string blockTypesText();

}  // namespace allot
