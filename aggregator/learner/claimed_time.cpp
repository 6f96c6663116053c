#include "aggregator/learner/claimed_time.h"

#include <algorithm>
#include <cstdio>

#include "aggregator/learner/worker_names.h"

namespace allot {
namespace {

// Clocks of two machines differ in rate by less.
constexpr double kSlackSeconds = 60;
constexpr double kSlackShare = 0.01;
// A process makes one name. Beyond so many names the one with the fewest seconds is forgotten.
constexpr size_t kMostNames = 10'000;

std::string timeText(double seconds) {
  char text[64];
  seconds < 3600 ? std::snprintf(text, sizeof text, "%.0f s", seconds)
                 : std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  return text;
}

double secondsBetween(uint64_t from_ms, uint64_t to_ms) {
  return to_ms > from_ms ? static_cast<double>(to_ms - from_ms) / 1000 : 0;
}

}  // namespace

void ClaimedTime::restore(const v1::AuditStatus& counted, uint64_t now_ms, uint64_t unix_ms,
                          uint64_t started_unix_ms) {
  started_unix_ms_ = started_unix_ms;
  restored_ms_ = now_ms;
  ran_before_ = secondsBetween(started_unix_ms, unix_ms);
  for (const v1::AuditedWorker& worker : counted.workers()) {
    seconds_[worker.worker()] = worker.seconds();
    // A clock that was set back since says less than what has counted.
    ran_before_ = std::max(ran_before_, worker.seconds());
  }
}

// A clock that is set back does not shorten the run. The monotonic clock may stand still while the
// machine sleeps.
double ClaimedTime::ranSeconds(uint64_t now_ms, uint64_t unix_ms) const {
  return std::max(secondsBetween(started_unix_ms_, unix_ms),
                  ran_before_ + secondsBetween(restored_ms_, now_ms));
}

std::string ClaimedTime::whyTooLong(const std::string& worker, double seconds, uint64_t now_ms,
                                    uint64_t unix_ms) const {
  const auto before = seconds_.find(worker);
  const double claimed = seconds + (before == seconds_.end() ? 0 : before->second);
  const double ran = ranSeconds(now_ms, unix_ms);
  if (claimed <= kSlackSeconds + (1 + kSlackShare) * ran) return "";
  return "worker " + shortOf(worker) + " says that its results took " + timeText(claimed) +
         ", but the run began " + timeText(ran) +
         " ago: stop this worker, or see whether its machine's clock jumps";
}

void ClaimedTime::add(const std::string& worker, double seconds) {
  if (seconds_.size() >= kMostNames && !seconds_.contains(worker)) {
    seconds_.erase(
        std::min_element(seconds_.begin(), seconds_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  seconds_[worker] += seconds;
}

}  // namespace allot
