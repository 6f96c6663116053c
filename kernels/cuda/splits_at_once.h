#pragma once
// How many exact splits a warp takes together (step.h). The launch chooses the kernel by the rows
// and by the longest row that Workspace::plan() allows, the kernel decides by the rows' lengths.
// Private to kernels/cuda. Pure functions, host and device.
#include <cstdint>

#include "kernels/cuda/step.h"

namespace allot::kernels::cuda {

// Returns the time that `teams` teams of warps take for `count` equal items. The unit is 1 / (8
// teams) of a turn, in which each team processes one item. A partial last turn takes its share of a
// turn, but at least 3/8: fewer warps do not keep memory busy.
constexpr int64_t timeOf(uint32_t count, uint32_t teams) {
  const int64_t left = count % teams, least = int64_t{3} * teams;
  const int64_t last = 8 * left > least ? 8 * left : least;
  return 8 * (count - left) + (left > 0 ? last : 0);
}

// Returns kJoinedSplits, with which a quarter of the sums is written, if that takes at most 33 / 32
// of the time (timeOf()); else 1.
constexpr int splitsAtOnce(uint32_t splits, uint32_t teams) {
  const uint32_t groups = (splits + kJoinedSplits - 1) / kJoinedSplits;
  const int64_t together = kJoinedSplits * timeOf(groups, teams);
  return 32 * together <= 33 * timeOf(splits, teams) ? kJoinedSplits : 1;
}

}  // namespace allot::kernels::cuda
