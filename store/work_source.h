#pragma once
// WorkSource: what a worker takes of a run, and what it hands in. As a Store: one thread, and every
// call waits for its answer (store/store.h).
#include <functional>
#include <string>
#include <vector>

#include "store/records.h"

namespace allot {

class WorkSource {
 public:
  virtual ~WorkSource() = default;

  // Sets the model facts if nobody has; returns the facts in force.
  virtual Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) = 0;
  // As many reissued tickets as the request allows, the lowest first, or else consecutive new ones;
  // empty: none for now.
  virtual Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) = 0;
  // kFull when the inbox holds `cap` entries: keep the result and try later.
  virtual Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) = 0;
  // Claims open units of one (policy version, chunk): free ones before those whose claim has ended;
  // chunks in `warm` first, then the oldest version, then the chunk that was claimed from longest
  // ago. Fewer than `count` if the free ones would not last long for all workers. Empty: nothing
  // waits.
  virtual Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) = 0;
  // Opens units again that `holder` claimed and will not do; what is recorded or claimed by another
  // one meanwhile is left alone.
  virtual Status releaseUnits(const std::string& holder,
                              const std::vector<v1::EvaluationUnit>& units) = 0;
  // Counts a unit once; kDuplicate if another worker was first, or if the unit was never planned.
  virtual Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) = 0;
  virtual Status beat(const Heartbeat& heartbeat) = 0;
  virtual Status leave(const std::string& worker) = 0;  // a worker that goes in good order
  // Whether there is something new for a worker that has nothing to do: a policy, settings, units
  // or tickets to hand out, room in the inbox. Waits for it, at most wait_ms or until `stop`, which
  // is asked some ten times a second, says so. What was new once is not new again for this object.
  virtual Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) = 0;
};

}  // namespace allot
