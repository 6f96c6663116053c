#include "store/archive/run_source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <thread>

#include "core/evaluation/answers.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "store/checks.h"

namespace allot {
namespace {

constexpr size_t kRecordsInSlice = 256;  // at most (RunReader::readHistory)
constexpr size_t kEvaluationsInSlice = 256;
constexpr size_t kAnsweredInSlice = 16;  // a MiB of answers at most
// Policy and state change in one step, so that a few tries of reading one after the other give a
// pair.
constexpr int kPairTries = 50;

}  // namespace

Result<std::vector<v1::IterationRecord>> readUpdates(RunReader* store, uint64_t after,
                                                     size_t count) {
  std::vector<v1::IterationRecord> records;
  while (records.size() < count) {
    ALLOT_ASSIGN(auto more, store->readHistory(after, count - records.size()));
    if (more.empty()) break;
    after = more.back().version();
    std::move(more.begin(), more.end(), std::back_inserter(records));
  }
  return records;
}

Result<v1::AggregatorState> firstState(const RunSpec& spec, const v1::ModelFacts& model) {
  if (model.layers() < 1 || model.layers() > kMaxScheduleEntries) {
    return fail(ErrorCode::kData,
                "a model of " + std::to_string(model.layers()) + " layers cannot have run here");
  }
  const uint64_t entries =
      uint64_t{model.layers()} * entriesPerLayer(spec.experiment.spec().policy(), shapeOf(model));
  if (entries > kMaxScheduleEntries) {
    return fail(ErrorCode::kData,
                "a schedule of " + std::to_string(entries) + " entries cannot have run here");
  }
  if (const Status fits = checkAgainstModel(spec.experiment, shapeOf(model)); !fits) {
    return fail(ErrorCode::kData, fits.error().message);
  }
  if (!spec.origin) return initialState(spec.experiment, shapeOf(model));
  const v1::AggregatorState& state = spec.origin->state();
  if (state.policy().version() != 0 || !store::isFinite(state)) {
    return fail(ErrorCode::kData, "its origin's state is not a finite first one");
  }
  ALLOT_TRY(checkBudgets(spec.experiment, shapeOf(model), state));
  v1::PolicySnapshot then = state.policy();
  then.set_version(spec.origin->version());
  if (policyDigest(then) != spec.origin->policy_sha256()) {
    return fail(ErrorCode::kData, "its first policy is not the one of its origin, version " +
                                      std::to_string(spec.origin->version()) + " of run " +
                                      escaped(spec.origin->run_id()));
  }
  return initialState(spec.experiment, shapeOf(model), &*spec.origin);
}

Result<RunHead> StoreSource::readHead() {
  RunHead head;
  head.run_id = run_id_;
  ALLOT_ASSIGN(const auto spec, store_.readSpec());
  if (!spec) return badInput("there is no run " + run_id_ + " in this store");
  head.image.spec = *spec;
  ALLOT_TRY(readPolicy(&head));
  // Units before evaluations: one that is accepted in between is then in both, never in neither.
  ALLOT_ASSIGN(head.image.open_units, store_.listUnits());
  std::erase_if(head.image.open_units, [&](const v1::EvaluationUnit& unit) {
    return unit.policy_version() > head.version();
  });
  ALLOT_ASSIGN(head.image.model, store_.readModel());
  ALLOT_ASSIGN(const auto control, store_.readControl());
  if (!control) return fail(ErrorCode::kData, "run " + run_id_ + " has no control record");
  head.image.control = *control;
  ALLOT_ASSIGN(head.image.next_ticket, store_.nextTicket());
  ALLOT_ASSIGN(head.refused, store_.readRefusalCounts());
  ALLOT_ASSIGN(head.waiting_results, store_.inboxSize());
  version_ = head.version();
  bounds_ = head.bounds();
  return head;
}

Status StoreSource::readPolicy(RunHead* head) {
  for (int i = 0; i < kPairTries; ++i) {
    ALLOT_ASSIGN(const auto policy, store_.readPolicy());
    ALLOT_ASSIGN(head->image.state, store_.readState());
    if (!policy && !head->image.state) return {};
    if (policy && head->image.state &&
        policy->snapshot.version() == head->image.state->policy().version()) {
      head->policy_sha256 = policy->sha256;
      return {};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return fail(ErrorCode::kData, "run " + run_id_ +
                                    " has a policy and a state of different versions: restore it "
                                    "from an export");
}

Result<std::vector<v1::IterationRecord>> StoreSource::nextRecords() {
  if (read_ == version_) return std::vector<v1::IterationRecord>();
  ALLOT_ASSIGN(auto records,
               store_.readHistory(read_, std::min<uint64_t>(kRecordsInSlice, version_ - read_)));
  for (const v1::IterationRecord& record : records) {
    if (record.version() != ++read_) {
      return fail(ErrorCode::kData, "update " + std::to_string(read_) +
                                        " is missing: after it is " +
                                        std::to_string(record.version()));
    }
  }
  if (records.empty()) {
    return fail(ErrorCode::kData, "the history ends with update " + std::to_string(read_) +
                                      ", the policy is of version " + std::to_string(version_));
  }
  return records;
}

Result<std::vector<v1::EvaluationResult>> StoreSource::nextEvaluations() {
  std::vector<v1::EvaluationResult> results;
  while (results.empty()) {
    ALLOT_ASSIGN(auto evaluations,
                 with_answers_ ? store_.readAnswers(evaluations_read_, kAnsweredInSlice)
                               : store_.readEvaluations(evaluations_read_, kEvaluationsInSlice));
    if (evaluations.empty()) break;
    evaluations_read_ = evaluations.back().entry_id;
    for (Evaluation& evaluation : evaluations) {
      const v1::EvaluationUnit& unit = evaluation.result.unit();
      if (!answersArePossible(evaluation.result)) evaluation.result.clear_answers();
      // Skips results newer than the head.
      if (unit.policy_version() <= version_ && !whyImpossible(evaluation.result, bounds_)) {
        results.push_back(std::move(evaluation.result));
      }
    }
  }
  return results;
}

Status StoreSource::checkEnd() {
  ALLOT_ASSIGN(const auto more, store_.readHistory(version_, 1));
  if (more.empty()) return {};
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (policy && policy->snapshot.version() > version_) return {};  // it went on meanwhile
  return fail(ErrorCode::kData, "the history goes on to update " +
                                    std::to_string(more.front().version()) +
                                    ", the policy is of version " + std::to_string(version_));
}

}  // namespace allot
