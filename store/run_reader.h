#pragma once
// RunReader: what anybody may read of a run. As a Store: one thread, and every call waits for its
// answer (store/store.h).
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/records.h"

namespace allot {

class RunReader {
 public:
  virtual ~RunReader() = default;

  // What this client then agrees on and pushes is for the run as it was read here: should it be
  // replaced, agreeOnModel, pushResult and pushEvaluation are refused (kFenced) until it is read
  // again. kUsage if a newer build created the run.
  virtual Result<std::optional<RunSpec>> readSpec() = 0;
  // Nothing before createRun, which writes revision 1: running, with the run's experiment.
  virtual Result<std::optional<Control>> readControl() = 0;
  virtual Result<std::optional<v1::ModelFacts>> readModel() = 0;
  // Who leads now.
  virtual Result<Lease> readLease() = 0;
  virtual Result<std::optional<v1::AggregatorStatus>> readStatus() = 0;
  virtual Result<std::optional<PublishedPolicy>> readPolicy() = 0;
  virtual Result<std::optional<v1::AggregatorState>> readState() = 0;
  // The policies of versions first, ..., first + count - 1, ascending, as far as commits have kept
  // them: not those that one was told to forget, nor any that an older build committed (they are in
  // the history).
  virtual Result<std::vector<v1::PolicySnapshot>> readPolicies(uint64_t first, size_t count) = 0;
  // Beats that are too large (kLargestBeat) or cannot be decoded are left out.
  virtual Result<std::vector<v1::WorkerBeat>> listWorkers() = 0;
  // Records with version > after, oldest first, at most `count`; fewer where they are large: one,
  // and then as many as are 8 MiB together.
  virtual Result<std::vector<v1::IterationRecord>> readHistory(uint64_t after, size_t count) = 0;
  // Evaluations recorded after the entry ("" = from the start), at most `count`, without their
  // answers.
  virtual Result<std::vector<Evaluation>> readEvaluations(const std::string& after,
                                                          size_t count) = 0;
  // The same with their answers, where these can be decoded and have at most kLargestAnswers bytes.
  virtual Result<std::vector<Evaluation>> readAnswers(const std::string& after, size_t count) = 0;
  // Those of these tickets that have counted in an update, ascending.
  virtual Result<std::vector<uint64_t>> countedTickets(const std::vector<uint64_t>& tickets) = 0;
  // The version up to which the tickets of all updates are known to countedTickets: behind the
  // policy's if an older build made updates.
  virtual Result<uint64_t> ticketsCountedThrough() = 0;
  virtual Result<uint64_t> nextTicket() = 0;
  virtual Result<uint64_t> inboxSize() = 0;
  // Units not yet recorded.
  virtual Result<uint64_t> openUnits() = 0;
  // The open ones; those that cannot be decoded or are larger than kLargestFacts are left out.
  virtual Result<std::vector<v1::EvaluationUnit>> listUnits() = 0;
  // How many were refused, by kind; all of kRefusalKinds are there.
  virtual Result<std::map<std::string, uint64_t>> readRefusalCounts() = 0;
  // The last ones, newest first, at most `count`.
  virtual Result<std::vector<Refusal>> readRefusals(size_t count) = 0;
  // kUsage where this user may not ask, as with accounts that an older build made.
  virtual Result<StoreFill> fill() = 0;
};

}  // namespace allot
