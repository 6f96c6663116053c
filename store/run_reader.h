#pragma once
// RunReader: reads a run and changes nothing. An account may lack the permission for a call
// (kUsage). One thread; every call waits for its answer (store/store.h).
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/records.h"

namespace allot {

class RunReader {
 public:
  virtual ~RunReader() = default;

  virtual const std::string& runId() const = 0;
  // Returns the spec; nothing before the run is created or imported. Later calls of agreeOnModel,
  // pushResult and pushEvaluation are for this spec. Once the run is replaced these calls are
  // refused (kFenced) until the spec is read again. kUsage if a newer build or a development build
  // before 0.1.0 created the run.
  virtual Result<std::optional<RunSpec>> readSpec() = 0;
  // Returns nothing before the run is created or imported. createRun writes revision 1: running,
  // with the run's experiment.
  virtual Result<std::optional<Control>> readControl() = 0;
  virtual Result<std::optional<v1::ModelFacts>> readModel() = 0;
  // Returns the lease of the current leader; Lease::held is false if there is none.
  virtual Result<Lease> readLease() = 0;
  virtual Result<std::optional<v1::AggregatorStatus>> readStatus() = 0;
  virtual Result<std::optional<PublishedPolicy>> readPolicy() = 0;
  virtual Result<std::optional<v1::AggregatorState>> readState() = 0;
  // Returns the policies of versions first, ..., first + count - 1, ascending, at most 256
  // versions. Missing are those that a commit was told to forget and, in an imported run, those
  // before the import (they are in the history).
  virtual Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) = 0;
  // Returns the last beat of each worker whose Heartbeat::ttl_ms has not passed, by name. Leaves
  // out beats above kLargestBeat, undecodable ones, and those beyond kMostWorkers or 8 MiB
  // together.
  virtual Result<std::vector<v1::WorkerBeat>> listWorkers() = 0;
  // Returns records with version > after, oldest first, at most `count` and 8 MiB, but the first
  // one even if it is larger.
  virtual Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) = 0;
  // Returns evaluations accepted after entry `after` ("" = from the start), at most `count` and 8
  // MiB, without their answers. An entry that cannot be decoded has an empty result.
  virtual Result<std::vector<Evaluation>> readEvaluations(const std::string& after,
                                                          size_t count) = 0;
  // As readEvaluations(), but with answers, except undecodable ones and those above kLargestAnswers
  // bytes.
  virtual Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) = 0;
  // Returns those of these tickets that have counted in an update, ascending, each once.
  virtual Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) = 0;
  virtual Result<uint64_t> nextTicket() = 0;
  virtual Result<uint64_t> inboxSize() = 0;
  // Returns the number of planned units that have no accepted evaluation yet.
  virtual Result<uint64_t> openUnits() = 0;
  // Returns these units.
  virtual Result<std::vector<v1::EvaluationUnit>> listUnits() = 0;
  // Returns the number of refused results and evaluations by kind, for all of kRefusalKinds.
  virtual Result<std::map<std::string, uint64_t>> readRefusalCounts() = 0;
  // Returns the last refusals, newest first, at most `count` and about 1000.
  virtual Result<std::vector<Refusal>> readRefusals(size_t count) = 0;
  virtual Result<StoreFill> fill() = 0;
};

}  // namespace allot
