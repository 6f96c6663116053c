#pragma once
// What decodeAttention() refuses before it starts. Private to kernels/cpu.
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

namespace allot::kernels {

// Nothing, or one sentence that names the tensor and the entry.
std::optional<std::string> checkInputs(const MethodOptions& method, const PagedKv& kv,
                                       const DecodeInputs& in);

}  // namespace allot::kernels
