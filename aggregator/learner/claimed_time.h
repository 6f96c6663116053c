#pragma once
// ClaimedTime: the seconds that workers say their results took, against the aggregator's clock.
//
// A worker's process does one batch at a time, and each result has its share of the batch. All that
// it claims is therefore at most the time since the run began. Owned by the Aggregator; one thread.
#include <cstdint>
#include <map>
#include <string>

#include "allot/v1/policy.pb.h"

namespace allot {

class ClaimedTime {
 public:
  // Takes what an earlier process had counted by worker, and begins to measure how long the run
  // has lasted. now_ms: monotonic.
  void restore(const v1::AuditStatus& counted, uint64_t now_ms, uint64_t unix_ms,
               uint64_t started_unix_ms);
  // Returns why the worker's results cannot have taken `seconds` more; "" if they can.
  // Requires: restore() was called.
  std::string whyTooLong(const std::string& worker, double seconds, uint64_t now_ms,
                         uint64_t unix_ms) const;
  // Notes the seconds of a result that may count.
  void add(const std::string& worker, double seconds);

 private:
  double ranSeconds(uint64_t now_ms, uint64_t unix_ms) const;

  std::map<std::string, double> seconds_;  // by worker
  uint64_t started_unix_ms_ = 0;
  uint64_t restored_ms_ = 0;  // monotonic
  double ran_before_ = 0;     // seconds that the run had lasted at least when this was restored
};

}  // namespace allot
