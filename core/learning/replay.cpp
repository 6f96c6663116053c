#include "core/learning/replay.h"

#include <google/protobuf/util/message_differencer.h>

#include <cassert>

#include "core/learning/learning_checks.h"
#include "core/learning/measured.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_schema.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

tl::unexpected<Error> refuse(uint64_t version, const std::string& what) {
  return fail(ErrorCode::kData, "update " + std::to_string(version) + ": " + what);
}

// Returns the first difference, as in "modified: mean_reward: 0.5 -> 0.6"; "" without one.
std::string difference(const v1::IterationRecord& recorded, const v1::IterationRecord& computed) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(recorded, computed)) return "";
  return report.substr(0, report.find('\n'));
}

}  // namespace

Replay::Replay(v1::Experiment experiment, v1::AggregatorState initial, bool synchronous,
               uint64_t window)
    : experiment_(std::move(experiment)),
      state_(std::move(initial)),
      synchronous_(synchronous),
      window_(window) {
  assert(window_ > 0);
  policies_.push_back(state_.policy());
}

Status Replay::checkResults(const v1::IterationRecord& record) {
  const uint64_t now = state_.policy().version();
  for (const v1::EpisodeResult& result : record.results()) {
    if (!consumed_.insert(result.result_id()).second) {
      return refuse(record.version(),
                    "result " + escaped(result.result_id(), 100) + " was consumed before");
    }
    if (!tickets_.insert(result.ticket())) {
      return refuse(record.version(), "result " + escaped(result.result_id(), 100) +
                                          " is a second one of ticket " +
                                          std::to_string(result.ticket()));
    }
    const uint64_t lag = now - result.policy_version();
    const v1::PolicySnapshot* behaviour = result.policy_version() <= now && lag < policies_.size()
                                              ? &*(policies_.rbegin() + static_cast<long>(lag))
                                              : nullptr;
    if (const Status checked = checkResult(experiment_, state_, result, behaviour); !checked) {
      return refuse(record.version(),
                    "result " + escaped(result.result_id(), 100) + ": " + checked.error().message);
    }
    if (isStale(experiment_, now, result)) {
      return refuse(record.version(),
                    "result " + escaped(result.result_id(), 100) + " is too old for it");
    }
  }
  return {};
}

// Takes the measurement that the run had before its first update. Nothing but the evaluations says
// whether it is right (store/archive/plan_check.h).
Status Replay::takeMeasurement(const v1::IterationRecord& record) {
  if (record.version() != 1) return {};
  const v1::Spec& spec = experiment_.spec();
  const bool is_due =
      learnsFromMeasurement(spec) && (measureQuestions(spec) > 0 || state_.has_measurement());
  if (record.has_measurement() != is_due) {
    return refuse(1, is_due ? "its record has no measurement of the layers, and the experiment "
                              "wants one"
                            : "its record has a measurement of the layers that nobody wanted");
  }
  if (!is_due || state_.has_measurement()) return {};  // the records are compared
  const auto layers = static_cast<uint32_t>(state_.policy().logits_size());
  if (const Status checked = checkMeasurement(record.measurement(), layers); !checked) {
    return refuse(1, checked.error().message);
  }
  *state_.mutable_measurement() = record.measurement();
  return {};
}

Status Replay::next(const v1::IterationRecord& record) {
  const uint64_t version = state_.policy().version() + 1;
  if (record.version() != version) {
    return refuse(version, "the next record is of version " + std::to_string(record.version()));
  }
  if (!record.has_update() || !record.has_staleness() || record.results_size() == 0) {
    return refuse(version, "its record has no settings or no results");
  }
  v1::Experiment in_force = experiment_;
  *in_force.mutable_spec()->mutable_update() = record.update();
  *in_force.mutable_spec()->mutable_staleness() = record.staleness();
  complete(&in_force);
  if (const Status allowed = checkLiveChanges(experiment_, in_force, synchronous_); !allowed) {
    return refuse(version, allowed.error().message);
  }
  experiment_ = std::move(in_force);
  const auto results = static_cast<uint32_t>(record.results_size());
  const uint32_t least = record.update().episodes_per_update();
  if (results < least || results > (takesAllResults(record.update()) ? kMostResults : least)) {
    return refuse(version, "it consumed " + std::to_string(record.results_size()) +
                               " results instead of " +
                               std::to_string(record.update().episodes_per_update()));
  }
  ALLOT_TRY(checkResults(record));
  ALLOT_TRY(takeMeasurement(record));
  UpdateOutcome outcome =
      applyUpdate(experiment_, state_, {record.results().begin(), record.results().end()});
  outcome.record.set_committed_unix_ms(record.committed_unix_ms());
  // Settings and time are not compared.
  *outcome.record.mutable_update() = record.update();
  *outcome.record.mutable_staleness() = record.staleness();
  const std::string recorded = record.SerializeAsString();
  if (outcome.record.policy_sha256() != record.policy_sha256()) {
    return refuse(version, "it computes to policy " + outcome.record.policy_sha256() +
                               ", not to the recorded " + escaped(record.policy_sha256(), 64));
  }
  if (outcome.record.SerializeAsString() != recorded) {
    return refuse(version, "its record differs from what it computes to: " +
                               difference(record, outcome.record));
  }
  state_ = std::move(outcome.state);
  policies_.push_back(state_.policy());
  if (policies_.size() > window_) policies_.pop_front();
  return {};
}

}  // namespace allot
