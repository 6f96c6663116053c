#pragma once
// WorkSource: the work that a worker pulls, and the results that it pushes. One thread; every call
// waits for its answer (store/store.h).
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/worker_identity.h"
#include "store/records.h"

namespace allot {

class WorkSource {
 public:
  virtual ~WorkSource() = default;

  // Makes pushes, answers to audits and beats signed ones, for the experiment that readSpec()
  // returned last. The aggregator refuses what the worker that it names has not signed.
  virtual void signAs(const WorkerIdentity& identity) = 0;
  // Sets the model facts if there are none, and returns the facts that the store has. kFenced if
  // the run was replaced, kUnavailable if they are unreadable: the aggregator forgets these.
  virtual Result<v1::ModelFacts> agreeOnModel(const v1::ModelFacts& mine) = 0;
  // Returns as many reissued tickets as the request allows, the lowest first. If there are none,
  // returns consecutive new ones, or nothing if all below the limit were handed out.
  virtual Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) = 0;
  // Returns kFull if the inbox has `cap` entries: keep the result and try later. Returns kDuplicate
  // if the result id is in the inbox, consumed or rejected. kFenced if the run was replaced.
  virtual Result<PushOutcome> pushResult(const v1::EpisodeResult& result, uint64_t cap) = 0;
  // Claims units of one (policy version, chunk). Free units come before those whose claim has
  // ended. Among free ones chunks in `warm` come first, then the oldest version, then the chunk
  // that was claimed from longest ago. Returns at most a worker's share of the free units
  // (store/README.md); none if all open units are claimed.
  virtual Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) = 0;
  // Reopens units that `holder` claimed and will not do. Units that are recorded or claimed by
  // another worker by now stay unchanged.
  virtual Status releaseUnits(const std::string& holder,
                              const std::vector<v1::EvaluationUnit>& units) = 0;
  // Records a unit once. Returns kDuplicate if the unit was recorded before, withdrawn or never
  // planned. kFenced if the run was replaced.
  virtual Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) = 0;
  // Returns what the aggregator asks this worker to answer again; nothing if it asks nothing.
  virtual Result<std::optional<v1::AuditTasks>> readAudits(const std::string& worker) = 0;
  // Leaves answers for the aggregator, in place of this worker's earlier ones. kUsage above
  // kLargestAudit bytes.
  virtual Status answerAudits(const v1::AuditAnswers& answers) = 0;
  virtual Status beat(const Heartbeat& heartbeat) = 0;
  virtual Status leave(const std::string& worker) = 0;  // deletes worker and beat
  // Returns true if there is news for an idle worker: a policy, settings, units, tickets or room in
  // the inbox. Waits at most wait_ms, or until `stop`, which is called about ten times a second,
  // returns true. Each piece of news is reported once to this object.
  virtual Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) = 0;
};

}  // namespace allot
