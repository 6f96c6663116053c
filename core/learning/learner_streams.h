#pragma once
// Names of what learners draw (Purpose::kLearner): one for each version and total budget.
#include <cstdint>

namespace allot {

// More than there are total budgets.
inline constexpr uint64_t kStreamsOfVersion = 64;

constexpr uint64_t learnerStream(uint64_t version, uint32_t budget) {
  return version * kStreamsOfVersion + budget;
}

}  // namespace allot
