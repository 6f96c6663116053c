#pragma once
// What pages and reports show of a history: a sample of it (HistorySample), and means over a few
// updates. An aggregator's memory must not grow with the history, and curves need no more than
// about a thousand points and the newest updates. One thread.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
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

// ---- Tickets of an asynchronous run ----

// A ticket whose worker does not answer is given to nobody else, so that a worker that answers only
// the tickets that it likes decides what is learned.
struct UnansweredTickets {
  uint64_t tickets = 0;     // up to the highest one that has counted
  uint64_t unanswered = 0;  // of these, those without a result that counts
  uint64_t in_hand = 0;     // that live workers may be at work on, or that wait for their update

  double share() const;
  // Returns a sentence if more are unanswered than kMostUnanswered, and those in hand; else "".
  std::string warning() const;
};

inline constexpr uint64_t kLeastTickets = 100;  // for a warning
inline constexpr double kMostUnanswered = 0.2;  // share of the tickets

// Returns what `counted` results leave unanswered, of the tickets below `reached`.
UnansweredTickets unansweredTickets(uint64_t reached, uint64_t counted, uint64_t in_hand);
// Returns the highest of `reached` and the tickets of the record's results + 1.
uint64_t ticketsReached(uint64_t reached, const v1::IterationRecord& record);
// "3357 of 3857 have no result that counts (87 %)"
std::string unansweredText(const UnansweredTickets& tickets);

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
