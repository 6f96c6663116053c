#pragma once
// Checks that a step's layer and heads fit into the bits that Philox counters have for them. Larger
// numbers would give two heads, or a head and another user of random numbers, the same draws.
// Private to kernels/; any thread.
#include <optional>
#include <string>

#include "allot/kernels/decode.h"
#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

// Returns a sentence if the layer or the heads do not fit, else nothing.
inline std::optional<std::string> beyondStreams(const DecodeInputs& in) {
  if (in.layer >= kStreamLayers) {
    return "layer = " + std::to_string(in.layer) + " is beyond " +
           std::to_string(kStreamLayers - 1) + ", the last that has random numbers of its own";
  }
  if (in.heads > kStreamHeads) {
    return "heads = " + std::to_string(in.heads) + " is beyond " + std::to_string(kStreamHeads) +
           ", the most that have random numbers of their own";
  }
  return std::nullopt;
}

}  // namespace allot::kernels
