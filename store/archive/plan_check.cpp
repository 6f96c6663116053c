#include "store/archive/plan_check.h"

#include <algorithm>

#include "core/digest.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/learning/measured.h"
#include "core/printable.h"
#include "core/spec/spec_yaml.h"
#include "core/spec/task_catalogue.h"

namespace allot {
namespace {

std::string named(const std::string& id) { return "evaluation unit " + escaped(id, 100); }

std::string bytesOf(v1::EvaluationUnit unit) {
  unit.DiscardUnknownFields();
  return unit.SerializeAsString();
}

// Removes the unit from `units`. Returns false, and removes nothing, if no unit there is equal.
bool takeFrom(std::map<std::string, std::string>* units, const v1::EvaluationUnit& planned) {
  const auto found = units->find(planned.unit_id());
  if (found == units->end() || found->second != bytesOf(planned)) return false;
  units->erase(found);
  return true;
}

}  // namespace

PlanCheck::PlanCheck(const RunHead& head)
    : experiment_(head.image.spec.experiment),
      in_force_(head.image.control.experiment),
      version_(head.version()),
      finished_(head.image.control.desired == Desired::kFinished),
      layer_losses_(experiment_, head.image.model ? head.image.model->layers() : 0) {
  for (const auto& unit : head.image.open_units) {
    open_[unit.policy_version()][unit.unit_id()] = bytesOf(unit);
  }
  if (!head.image.state) return;
  seconds_ = head.image.state->worker_seconds();
  if (head.image.state->has_measurement()) measurement_ = head.image.state->measurement();
  const auto& origin = head.image.spec.origin;
  inherited_ = inheritsMeasurement(experiment_.spec(), origin ? &*origin : nullptr);
  if (head.image.state->has_evaluation()) evaluated_ = head.image.state->evaluated_version();
}

Status PlanCheck::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  if (!ids_.insert(unit.unit_id()).second) {
    return fail(ErrorCode::kData, named(unit.unit_id()) + " is recorded twice");
  }
  recorded_[unit.policy_version()][unit.unit_id()] = bytesOf(unit);
  // It was accepted after the open units were read.
  if (const auto open = open_.find(unit.policy_version()); open != open_.end()) {
    open->second.erase(unit.unit_id());
  }
  seconds_ += result.seconds();
  layer_losses_.add(result);
  ALLOT_TRY(compareTasks(result));
  return compareScores(result);
}

// The questions are the same ones in all cells and versions.
Status PlanCheck::compareTasks(const v1::EvaluationResult& result) {
  const auto conflict = tasks_.find(result);
  tasks_.add(result);
  if (!conflict) return {};
  const auto of = [](const v1::EvaluationResult& one) {
    return escaped(one.unit().unit_id(), 100) + " of worker " +
           escaped(withoutMiddle(one.worker(), 60), 100);
  };
  return fail(ErrorCode::kData,
              "evaluation units " + of(*conflict->earlier) + " and " + of(result) +
                  " say that question " +
                  std::to_string(result.scores(static_cast<int>(conflict->place)).question()) +
                  " is of two tasks: one of them was changed, or made up");
}

// Scores, and what stands beside them, are those of the schedule, whatever its cell and version. A
// program that the model wrote may run out of time once and not again.
Status PlanCheck::compareScores(const v1::EvaluationResult& result) {
  if (measureOf(result.unit()) != Measure::kAccuracy || runsCode(experiment_.spec().task()) ||
      result.build().empty() || result.arithmetic().empty()) {
    return {};
  }
  v1::EvaluationResult given, scores;
  v1::EvaluationUnit& asked = *given.mutable_unit();
  asked = result.unit();
  asked.clear_unit_id();
  asked.clear_policy_version();
  asked.clear_schedule_name();
  asked.clear_total_budget();
  given.set_build(result.build());
  given.set_arithmetic(result.arithmetic());
  *scores.mutable_scores() = result.scores();
  scores.DiscardUnknownFields();
  const std::string digest = sha256Hex(scores.SerializeAsString());
  const auto [same, is_new] =
      scores_.try_emplace(sha256Hex(given.SerializeAsString()), digest, result.unit().unit_id());
  if (is_new || same->second.first == digest) return {};
  return fail(ErrorCode::kData,
              "evaluation units " + escaped(same->second.second, 100) + " and " +
                  escaped(result.unit().unit_id(), 100) +
                  " have the same schedule, questions, build and arithmetic, and other scores, "
                  "tasks or lengths: one of them was changed, or measured wrong by " +
                  escaped(withoutMiddle(result.worker(), 60), 100));
}

bool PlanCheck::hoursSpent() const {
  const auto spent = [&](const v1::Experiment& experiment) {
    const double most = experiment.spec().stop().max_worker_hours();
    return most > 0 && seconds_ >= 3600 * most;
  };
  return spent(experiment_) || spent(in_force_);
}

void PlanCheck::note(const std::string& id, const std::string& fault) {
  if (fault_.empty()) fault_ = named(id) + " " + fault;
}

// The state may lack a measurement whose last unit was accepted after the state was written.
void PlanCheck::compareMeasurement() {
  if (!measurement_ || inherited_ || !fault_.empty()) return;
  const auto measured = layer_losses_.complete();
  if (!measured) {
    fault_ = "the state has a measurement of the layers, and not all of its units are recorded";
  } else if (measured->SerializeAsString() != measurement_->SerializeAsString()) {
    fault_ = "the state's measurement of the layers is not what the recorded units add up to";
  }
}

void PlanCheck::compare(const v1::PolicySnapshot& policy) {
  const uint64_t version = policy.version();
  if (version == 0) compareMeasurement();
  Units recorded = std::move(recorded_[version]), open = std::move(open_[version]);
  recorded_.erase(version);
  open_.erase(version);
  // Version 0 is planned before the first update, and the last one before the run finishes.
  const bool last = version == version_;
  const bool all_done = last && finished_ && !hoursSpent();
  const bool planned = evaluated_ == version || (version == 0 && !last) || all_done;
  const bool touched = planned || !recorded.empty() || !open.empty();
  if (!touched && !evaluationDue(in_force_, version)) return;
  // Units may have been accepted after the state was read, and measured cells planned.
  const auto measured = measurement_ ? measurement_ : layer_losses_.complete();
  const auto plan =
      planEvaluation(experiment_, policy, {measured ? &*measured : nullptr, inherited_});
  if (!touched) {
    if (!plan.empty()) unevaluated_.push_back(version);
    return;
  }
  // Nobody has noted yet that the newest version is planned.
  const bool may_lack = hoursSpent() || (last && !planned);
  for (const v1::EvaluationUnit& unit : plan) {
    if (takeFrom(&recorded, unit)) continue;
    if (recorded.contains(unit.unit_id())) continue;  // another unit of this id: below
    const bool is_open = takeFrom(&open, unit);
    if (!measurement_ && unit.schedule_name() == kMeasuredSchedule && !is_open) continue;
    ++missing_[{version, cellOf(unit)}];
    if (all_done) note(unit.unit_id(), "is not recorded, and the run says that it is finished");
    if (!is_open && !may_lack) {
      note(unit.unit_id(), "was planned, and is neither recorded nor open: it was deleted");
    }
  }
  for (const Units* units : {&recorded, &open}) {
    for (const auto& [id, bytes] : *units) {
      note(id, "is not one that version " + std::to_string(version) +
                   " plans: nothing else than the plan is measured");
    }
  }
}

Status PlanCheck::end() const {
  if (!fault_.empty()) return fail(ErrorCode::kData, fault_);
  for (const auto* units : {&recorded_, &open_}) {
    for (const auto& [version, of_version] : *units) {
      if (of_version.empty()) continue;
      return fail(ErrorCode::kData, named(of_version.begin()->first) + " is of version " +
                                        std::to_string(version) +
                                        ", which the run has not reached");
    }
  }
  return {};
}

}  // namespace allot
