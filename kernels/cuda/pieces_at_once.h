#pragma once
// How many exact pieces a warp takes at once (step.h): for the launch, which knows the plan, and
// for the kernel, which knows the lengths.
#include <cstdint>

#include "kernels/cuda/step.h"

namespace allot::kernels::cuda {

// What `count` equal parts of work take that `teams` of warps do in turns, in eighths of a part and
// times `teams`. A last turn takes as long as its bytes, but three eighths of a turn at least:
// fewer warps than that do not keep memory busy.
constexpr int64_t timeOf(int64_t count, int64_t teams) {
  const int64_t left = count % teams;
  const int64_t last = 8 * left > 3 * teams ? 8 * left : 3 * teams;
  return count / teams * 8 * teams + (left > 0 ? last : 0);
}

// Fours, of which a quarter of the sums is written, unless they take 3 % longer by the rule above.
constexpr int piecesAtOnce(int64_t pieces, int64_t teams) {
  const int64_t fours = (pieces + kJoinedPieces - 1) / kJoinedPieces;
  const int64_t together = kJoinedPieces * timeOf(fours, teams);
  return 32 * together <= 33 * timeOf(pieces, teams) ? kJoinedPieces : 1;
}

}  // namespace allot::kernels::cuda
