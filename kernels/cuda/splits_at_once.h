#pragma once
// How many exact splits a warp takes at once (step.h): for the launch, which knows the plan, and
// for the kernel, which knows the lengths.
#include <cstdint>

#include "kernels/cuda/step.h"

namespace allot::kernels::cuda {

// What `count` equal parts of work take that `teams` of warps do in turns, in eighths of a part and
// times `teams`. A last turn takes as long as its bytes, but three eighths of a turn at least:
// fewer warps than that do not keep memory busy.
constexpr int64_t timeOf(uint32_t count, uint32_t teams) {
  const int64_t left = count % teams, least = int64_t{3} * teams;
  const int64_t last = 8 * left > least ? 8 * left : least;
  return 8 * (count - left) + (left > 0 ? last : 0);
}

// Fours, of which a quarter of the sums is written, unless they take 3 % longer by the rule above.
constexpr int splitsAtOnce(uint32_t splits, uint32_t teams) {
  const uint32_t groups = (splits + kJoinedSplits - 1) / kJoinedSplits;
  const int64_t together = kJoinedSplits * timeOf(groups, teams);
  return 32 * together <= 33 * timeOf(splits, teams) ? kJoinedSplits : 1;
}

}  // namespace allot::kernels::cuda
