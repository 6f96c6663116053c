#pragma once
// The checks of decodeAttention()'s inputs. Private to kernels/cpu; any thread.
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

namespace allot::kernels {

// Returns nothing, or one sentence that says what is refused.
std::optional<std::string> checkInputs(const MethodOptions& method, const PagedKv& kv,
                                       const DecodeInputs& in);

}  // namespace allot::kernels
