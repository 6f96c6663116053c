#pragma once
// HistorySample: the history of a run, thinned so that it stays small however long the run is.
//
// Pages and reports draw curves: about a thousand points and the newest hundred updates are enough,
// and an aggregator must not grow by what it has done. One thread.
#include <cstdint>
#include <deque>
#include <map>
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

}  // namespace allot
