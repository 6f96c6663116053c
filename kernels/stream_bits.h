#pragma once
// The bits that a Philox counter has for a layer and a head. Beyond them two heads would draw the
// same numbers, or a head those of somebody who is none. Private to kernels/; any thread.
#include <optional>
#include <string>

#include "allot/kernels/decode.h"
#include "allot/kernels/philox_streams.h"

namespace allot::kernels {

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
