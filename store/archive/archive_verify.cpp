// Verify, import and origins: what computes a run's updates again.
#include <chrono>
#include <unordered_set>

#include "core/learning/history_summary.h"
#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/spec/spec_yaml.h"
#include "store/archive/archive.h"
#include "store/archive/plan_check.h"
#include "store/checks.h"

namespace allot {
namespace {

// Returns the name of the first field in which the two states differ; "" if there is none.
std::string firstDifference(const v1::Spec& spec, const v1::AggregatorState& stored,
                            const v1::AggregatorState& mine) {
  const auto* descriptor = v1::AggregatorState::descriptor();
  const auto* reflection = v1::AggregatorState::GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    // No update writes these. The first record has a measurement that is learned from; before it,
    // and of another one, PlanCheck alone compares it.
    const std::string& name = field->name();
    if (name == "evaluated_version" || name == "has_evaluation") continue;
    const bool in_record = stored.policy().version() > 0 && learnsFromMeasurement(spec);
    if (name == "measurement" && !in_record && !mine.has_measurement()) continue;
    v1::AggregatorState a = stored, b = mine;
    for (int other = 0; other < descriptor->field_count(); ++other) {
      if (other == i) continue;
      reflection->ClearField(&a, descriptor->field(other));
      reflection->ClearField(&b, descriptor->field(other));
    }
    if (a.SerializeAsString() != b.SerializeAsString()) return field->name();
  }
  return "";
}

// Replays a run's records, and compares the last state with the head's.
class Verifier {
 public:
  static Result<Verifier> start(RunSource* source) {
    ALLOT_ASSIGN(RunHead head, source->readHead());
    if (!head.image.model) {
      if (head.image.state) {
        return fail(ErrorCode::kData, "the run has a policy but no model");
      }
      return Verifier(std::move(head), v1::AggregatorState());
    }
    ALLOT_TRY(store::checkArithmetic(head.image.spec, source->name()));
    ALLOT_ASSIGN(v1::AggregatorState first, firstState(head.image.spec, *head.image.model));
    return Verifier(std::move(head), std::move(first));
  }

  Status next(const v1::IterationRecord& record) {
    ALLOT_TRY(replay_.next(record));
    ++summary_.updates;
    summary_.results += static_cast<uint64_t>(record.results_size());
    for (const v1::EpisodeResult& result : record.results()) workers_.insert(result.worker());
    summary_.tickets_reached = ticketsReached(summary_.tickets_reached, record);
    plans_.compare(state().policy());
    return {};
  }

  // Checks that the evaluation is possible, and notes its unit.
  Status next(const v1::EvaluationResult& result) {
    const std::string& id = result.unit().unit_id();
    if (const auto why = whyImpossible(result, summary_.head.bounds())) {
      return fail(ErrorCode::kData, "evaluation unit " + escaped(id, 100) + " " + *why);
    }
    ++summary_.evaluations;
    return plans_.add(result);
  }
  // Requires: next() was called for all evaluations, and for no record.
  void begin() {
    if (head().image.state) plans_.compare(state().policy());
  }

  // Checks the replayed state against the published one, the end of the source, and the recorded
  // evaluations against their plans.
  // Requires: next() was called for all evaluations and records.
  Status end(RunSource* source) {
    ALLOT_TRY(checkState());
    ALLOT_TRY(source->checkEnd());
    summary_.missing = plans_.missing();
    summary_.unevaluated = plans_.unevaluated();
    return plans_.end();
  }
  Status checkState() {
    const RunHead& head = summary_.head;
    if (!head.image.state) return {};
    const std::string at = "version " + std::to_string(head.version());
    if (head.policy_sha256 != policyDigest(head.image.state->policy())) {
      return fail(ErrorCode::kData, at + ": the published policy is not the state's");
    }
    const v1::AggregatorState& stored = *head.image.state;
    const std::string field =
        firstDifference(head.image.spec.experiment.spec(), stored, replay_.state());
    if (!field.empty()) {
      return fail(ErrorCode::kData,
                  at + ": the stored state is not what its history gives: " + field + " differs");
    }
    return {};
  }

  const RunHead& head() const { return summary_.head; }
  const v1::AggregatorState& state() const { return replay_.state(); }
  bool isRecorded(const v1::EvaluationUnit& unit) const { return plans_.isRecorded(unit); }

  VerifySummary summary() {
    summary_.workers = workers_.size();
    summary_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    return summary_;
  }

 private:
  Verifier(RunHead head, v1::AggregatorState first)
      : replay_(head.image.spec.experiment, std::move(first), head.image.spec.synchronous),
        plans_(head) {
    summary_.head = std::move(head);
  }

  Replay replay_;
  PlanCheck plans_;
  VerifySummary summary_;
  std::unordered_set<std::string> workers_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

using Slice = std::vector<v1::IterationRecord>;

// Replays all records up to `last`. Calls `each` with every slice that was right.
Status replayRecords(RunSource* source, Verifier* verifier, uint64_t last,
                     const ArchiveProgress& progress,
                     const std::function<Status(const Slice&)>& each) {
  while (verifier->state().policy().version() < last) {
    ALLOT_ASSIGN(const Slice records, source->nextRecords());
    if (records.empty()) break;
    for (const v1::IterationRecord& record : records) {
      if (record.version() > last) break;
      ALLOT_TRY(verifier->next(record));
    }
    if (each) ALLOT_TRY(each(records));
    if (progress) progress(verifier->state().policy().version(), last);
  }
  return {};
}

using Evaluations = std::vector<v1::EvaluationResult>;

Status checkEvaluations(RunSource* source, Verifier* verifier,
                        const std::function<Status(const Evaluations&)>& each) {
  while (true) {
    ALLOT_ASSIGN(const Evaluations results, source->nextEvaluations());
    if (results.empty()) break;
    for (const v1::EvaluationResult& result : results) ALLOT_TRY(verifier->next(result));
    if (each) ALLOT_TRY(each(results));
  }
  verifier->begin();
  return {};
}

}  // namespace

Result<VerifySummary> verifyRun(RunSource* source, const ArchiveProgress& progress,
                                const ResultWatcher& watcher) {
  ALLOT_ASSIGN(Verifier verifier, Verifier::start(source));
  const auto records = [&](const Slice& slice) -> Status {
    if (!watcher.record) return {};
    for (const v1::IterationRecord& record : slice) watcher.record(record);
    return {};
  };
  const auto evaluations = [&](const Evaluations& results) -> Status {
    if (!watcher.evaluation) return {};
    for (const v1::EvaluationResult& result : results) watcher.evaluation(result);
    return {};
  };
  ALLOT_TRY(checkEvaluations(source, &verifier, evaluations));
  ALLOT_TRY(replayRecords(source, &verifier, verifier.head().version(), progress, records));
  ALLOT_TRY(verifier.end(source));
  return verifier.summary();
}

Result<VerifySummary> importRun(RunSource* source, RunImport* store,
                                const ArchiveProgress& progress) {
  ALLOT_ASSIGN(Verifier verifier, Verifier::start(source));
  ALLOT_TRY(store->beginImport());
  source->askForAnswers();
  ALLOT_TRY(checkEvaluations(source, &verifier, [&](const Evaluations& results) {
    return store->importEvaluations(results);
  }));
  ALLOT_TRY(replayRecords(source, &verifier, verifier.head().version(), progress,
                          [&](const Slice& slice) { return store->importHistory(slice); }));
  ALLOT_TRY(verifier.end(source));
  RunImage image = verifier.head().image;
  std::erase_if(image.open_units,
                [&](const v1::EvaluationUnit& unit) { return verifier.isRecorded(unit); });
  ALLOT_TRY(store->endImport(image));
  return verifier.summary();
}

Result<v1::Origin> originAt(RunSource* source, uint64_t version, const ArchiveProgress& progress) {
  ALLOT_ASSIGN(Verifier verifier, Verifier::start(source));
  const RunHead& head = verifier.head();
  if (!head.image.state) return badInput(source->name() + " has not begun: it has no version yet");
  if (version > head.version()) {
    return badInput(source->name() + " has no version " + std::to_string(version) +
                    ": its newest is " + std::to_string(head.version()));
  }
  ALLOT_TRY(replayRecords(source, &verifier, version, progress, {}));
  v1::AggregatorState state = verifier.state();
  // Records have it only where updates learn from it.
  if (!state.has_measurement() && head.image.state->has_measurement()) {
    *state.mutable_measurement() = head.image.state->measurement();
  }
  return originOf(head.image.spec.experiment, head.run_id, state);
}

}  // namespace allot
