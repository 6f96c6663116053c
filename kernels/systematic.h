#pragma once
// Counts systematic sampling's draws below a prefix sum, in exact arithmetic. Private to kernels/.
// Pure functions, host and device, any thread.
#include <cstdint>

#include "allot/kernels/philox.h"

namespace allot::kernels {

// The bits of a uniform offset u = offset / 2^24.
constexpr int kOffsetBits = 24;
ALLOT_HOST_DEVICE inline uint32_t offsetOf(uint32_t word) { return word >> (32 - kOffsetBits); }

// Returns floor(S prefix / total + u) exactly, S = samples: the draws below the prefix sum.
// Requires: 0 < total < 2^62.
ALLOT_HOST_DEVICE inline uint32_t systematicDrawsBelow(uint64_t prefix, uint64_t total,
                                                       uint32_t samples, uint32_t offset) {
  __extension__ using Wide = unsigned __int128;
  const Wide reached =
      ((static_cast<Wide>(prefix) * samples) << kOffsetBits) + static_cast<Wide>(offset) * total;
  return static_cast<uint32_t>(reached / (static_cast<Wide>(total) << kOffsetBits));
}

}  // namespace allot::kernels
