#pragma once
// What pages and reports show of a history: a sample of it (HistorySample), and means over a few
// updates. An aggregator's memory must not grow with the history, and curves need no more than
// about a thousand points and the newest updates. One thread.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "allot/v1/policy.pb.h"

namespace allot {

class HistorySample {
 public:
  static constexpr size_t kFirst = 10;     // oldest records, which are always kept
  static constexpr size_t kRecent = 100;   // newest records, which are always kept
  static constexpr size_t kPoints = 1000;  // most records at equal distances

  // Adds the next record of the history, or of versionsToLoad().
  // Requires: its version is above that of the record added before.
  void add(v1::IterationRecord record);
  void clear();
  // Returns the kept records, ascending by version, without results, weights and baselines.
  std::vector<v1::IterationRecord> records() const;

  // Returns the versions that a sample keeps of a history that ends at `last`.
  static std::vector<uint64_t> versionsToLoad(uint64_t last);

 private:
  uint64_t stride_ = 1;
  std::map<uint64_t, v1::IterationRecord> points_;  // the first, and versions that stride_ divides
  std::deque<v1::IterationRecord> recent_;          // the newest
};

// ---- Means over a few updates ----

inline constexpr size_t kMeanUpdates = 10;

struct UpdateMeans {
  size_t updates = 0;
  double reward = 0;
  double lag = 0;  // in updates
  double effective_sample_size_ratio = 0;
  double step_kl_nats = 0;
};

// Return the means over all these records, the first kMeanUpdates or the last kMeanUpdates. The
// records may lack their results. Without records all means are 0.
UpdateMeans meansOf(std::span<const v1::IterationRecord> records);
UpdateMeans firstMeans(std::span<const v1::IterationRecord> records);
UpdateMeans lastMeans(std::span<const v1::IterationRecord> records);

}  // namespace allot
