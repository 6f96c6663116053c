#pragma once
// What pages and reports show of a history: HistorySample, the history of a run thinned so that it
// stays small however long the run is, and means over a few updates.
//
// Pages and reports draw curves: about a thousand points and the newest hundred updates are enough,
// and an aggregator must not grow by what it has done. One thread.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "allot/v1/policy.pb.h"

namespace allot {

class HistorySample {
 public:
  static constexpr size_t kFirst = 10;
  static constexpr size_t kRecent = 100;
  static constexpr size_t kPoints = 1000;

  // The next record, or one of versionsToLoad(), in order of version.
  void add(v1::IterationRecord record);
  void clear();
  // Ascending versions; results, weights and baselines left out.
  std::vector<v1::IterationRecord> records() const;

  // What of a history that ends at `last` this would have kept.
  static std::vector<uint64_t> versionsToLoad(uint64_t last);

 private:
  uint64_t stride_ = 1;
  std::map<uint64_t, v1::IterationRecord> points_;  // versions that stride_ divides
  std::deque<v1::IterationRecord> recent_;          // those that came last
};

// ---- Means over a few updates, as status and page show them ----

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
