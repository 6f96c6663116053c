#pragma once
// The bits that a Philox counter has for a layer and a head: layer << 16 | head. Beyond them two
// heads would draw the same numbers. Private to kernels/; any thread.
#include <optional>
#include <string>

#include "allot/kernels/decode.h"

namespace allot::kernels {

inline constexpr int kStreamHeads = 1 << 16;
inline constexpr uint32_t kStreamLayers = 1 << 16;

// A sentence where a step's layer or heads are beyond them.
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
