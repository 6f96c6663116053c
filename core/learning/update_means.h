#pragma once
// Means over a few updates, as status and page tell them. Pure, any thread.
#include <cstddef>
#include <span>

#include "allot/v1/policy.pb.h"

namespace allot {

inline constexpr size_t kMeanUpdates = 10;  // that a mean covers

struct UpdateMeans {
  size_t updates = 0;
  double reward = 0;
  double lag = 0;
  double effective_sample_size_ratio = 0;
  double step_kl_nats = 0;
};

// Of these records, whose results need not be in them.
UpdateMeans meansOf(std::span<const v1::IterationRecord> records);
// Of the first, and of the last kMeanUpdates of them.
UpdateMeans firstMeans(std::span<const v1::IterationRecord> records);
UpdateMeans lastMeans(std::span<const v1::IterationRecord> records);

}  // namespace allot
