// The part of Ledger that looks back once nothing moves any more.
#include <cmath>

#include "core/learning/policy.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "store/archive/archive.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/ledger.h"

namespace allot::sim {
namespace {

std::string named(uint64_t number) { return std::to_string(number); }

std::string cellName(uint64_t version, const std::string& method, const std::string& schedule,
                     uint64_t budget) {
  return "v" + named(version) + " " + method + " " + schedule + " " + named(budget);
}

}  // namespace

void Ledger::checkEnd() {
  const auto control = eye_->readControl();
  if (!control || !*control) return violate("the run's control is gone");
  const Desired desired = (*control)->desired;
  if (desired != Desired::kFinished) violate("the run is " + std::string(wordOf(desired)));
  const uint64_t wanted = (*control)->experiment.spec().update().max_updates();
  // More only if a person lowered the number after they were made.
  if (version_ < wanted || version_ > most_updates_) {
    violate("the run finished after " + named(version_) + " updates instead of " + named(wanted));
  }
  checkVersions();
  checkHistory();
  checkInbox();
  checkRefusals();
  checkTickets();
  checkEvaluations();
}

// The whole history again, as `allot verify` reads it.
void Ledger::checkHistory() {
  const auto records = eye_->readHistory(0, 100'000);
  if (!records) return violate("the history cannot be read");
  Replay replay(scenario_.run.experiment, initialState(scenario_.run.experiment, scenario_.shape),
                scenario_.run.synchronous, scenario_.policy_window);
  std::set<std::string> ids;
  uint64_t ticket = 0;
  for (const auto& record : *records) {
    if (const Status next = replay.next(record); !next) {
      return violate("replay at the end: " + next.error().message);
    }
    for (const auto& result : record.results()) {
      if (!ids.insert(result.result_id()).second) {
        violate("result " + result.result_id() + " is in two records");
      }
      if (!scenario_.run.synchronous) continue;
      if (result.ticket() != ticket++ || result.policy_version() + 1 != record.version()) {
        violate("update " + named(record.version()) + " of a synchronous run consumed ticket " +
                named(result.ticket()) + " of version " + named(result.policy_version()));
      }
    }
  }
  if (ids != consumed_) violate("the history holds other results than were consumed");
  const auto policy = eye_->readPolicy();
  auto state = eye_->readState();
  if (!policy || !*policy || !state || !*state) return violate("policy or state is gone");
  if (policyDigest(replay.state().policy()) != (*policy)->sha256) {
    violate("the published policy is not that of the history");
  }
  (*state)->clear_evaluated_version();
  (*state)->clear_has_evaluation();
  // No record has a measurement that nothing is learned from: verifyRun() compares it.
  if (!learnsFromMeasurement(scenario_.run.experiment.spec())) (*state)->clear_measurement();
  if ((*state)->SerializeAsString() != replay.state().SerializeAsString()) {
    violate("the state is not that of the history");
  }
}

// Nothing that was taken in is lost: it was consumed, refused, or waits still.
void Ledger::checkInbox() {
  const auto waiting = late_eye_->readInbox(100'000, 0);
  if (!waiting) return violate("the inbox cannot be read");
  std::set<std::string> ids;
  for (const InboxEntry& entry : *waiting) {
    ids.insert(entry.entry_id);
    const auto found = entries_.find(entry.entry_id);
    if (found == entries_.end()) {
      violate("entry " + entry.entry_id + " came from nowhere");
    } else if (!found->second.fate.empty()) {
      violate("entry " + entry.entry_id + " waits, though it was " + found->second.fate);
    }
  }
  for (const auto& [entry_id, entry] : entries_) {
    if (entry.fate.empty() && !ids.contains(entry_id)) {
      violate("result " + entry.result_id + " was taken in and is lost");
    }
  }
}

void Ledger::checkRefusals() {
  const auto counts = eye_->readRefusalCounts();
  if (!counts) return violate("the refusals cannot be read");
  for (const char* kind : kRefusalKinds) {
    const auto counted = counts->find(kind);
    if (counted == counts->end() || counted->second != refusals_.count(kind)) {
      violate(std::string("refused as ") + kind + ": " + named(refusals_.count(kind)) +
              ", but the store counts " +
              (counted == counts->end() ? "nothing" : named(counted->second)));
    }
  }
}

void Ledger::checkTickets() {
  const auto next = eye_->nextTicket();
  if (!next) return violate("the next ticket cannot be read");
  for (uint64_t ticket = 0; ticket < *next; ++ticket) {
    if (!arrived_.contains(ticket) && !unheard_.contains(ticket) && !excused_.contains(ticket)) {
      violate("ticket " + named(ticket) + " has no result and nobody lost it");
    }
  }
}

std::map<std::string, std::pair<uint64_t, double>> Ledger::trueCells(uint64_t version) const {
  std::map<std::string, std::pair<uint64_t, double>> cells;
  for (const auto& [id, unit] : planned_) {
    if (unit.policy_version() > version || measureOf(unit) != Measure::kAccuracy) continue;
    auto& [questions, sum] = cells[cellName(unit.policy_version(), unit.method(),
                                            unit.schedule_name(), unit.total_budget())];
    questions += unit.question_count();
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      sum += heldOutScore(unit, unit.first_question() + i);
    }
  }
  return cells;
}

void Ledger::shown(uint64_t version, const std::vector<EvaluationCell>& cells) {
  const auto expected = trueCells(version);
  if (cells.size() != expected.size()) {
    violate("the aggregator shows " + named(cells.size()) + " cells instead of " +
            named(expected.size()));
  }
  for (const EvaluationCell& cell : cells) {
    const std::string name =
        cellName(cell.version, cell.method, cell.schedule_name, cell.total_budget);
    const auto truth = expected.find(name);
    if (truth == expected.end()) {
      violate("the aggregator shows cell " + name + ", which was not planned");
    } else if (!cell.complete || cell.all.n != truth->second.first ||
               (liars_.empty() && std::abs(cell.all.sum - truth->second.second) > 1e-9)) {
      violate("cell " + name + " shows " + std::to_string(cell.all.sum) + " of " +
              named(cell.all.n) + " instead of " + std::to_string(truth->second.second) + " of " +
              named(truth->second.first));
    }
  }
}

// Every planned unit is recorded once and tells the truth, and what had to be planned was.
void Ledger::checkEvaluations() {
  const auto open = eye_->listUnits();
  const auto evaluations = eye_->readEvaluations("", 100'000);
  if (!open || !evaluations) return violate("the evaluations cannot be read");
  for (const auto& unit : *open) {
    if (!planned_late_.contains(unit.unit_id())) violate("unit " + unit.unit_id() + " is open");
  }
  std::set<std::string> recorded, liars;
  const auto told = eye_->readStatus();
  if (!told || !*told) return violate("the aggregator's status is gone");
  for (const v1::AuditedWorker& worker : (*told)->audits().workers()) {
    if (!worker.lies().empty()) liars.insert(worker.worker());
  }
  for (const Evaluation& evaluation : *evaluations) {
    const std::string& id = evaluation.result.unit().unit_id();
    // A stranger's, after the last evaluation that is waited for.
    if (!evaluation.accepted && (id.empty() || planned_late_.contains(id))) continue;
    const auto plan = planned_.find(id);
    if (plan == planned_.end())
      violate("unit " + id + " was recorded, but not planned");
    else if (liars.contains(evaluation.result.worker()) &&
             measureOf(plan->second) != Measure::kLayerLoss)  // which updates have learned from
      violate("unit " + id + " is of a worker that lies");
    else if (!isTrue(plan->second, evaluation.result) &&
             !liars_.contains(evaluation.result.worker()))
      violate("unit " + id + " is not true");
    if (!recorded.insert(id).second) violate("unit " + id + " was recorded twice");
  }
  for (const auto& [id, unit] : planned_) {
    if (!recorded.contains(id) && !planned_late_.contains(id))
      violate("unit " + id + " was never recorded");
  }
  StoreSource source(eye_.get(), "sim");
  const auto verified = verifyRun(&source);
  if (!verified) {
    violate("verify: " + verified.error().message);
  } else if (!verified->missing.empty()) {
    violate("verify: a unit of " + verified->missing.begin()->first.second + " is missing");
  }
  const auto records = eye_->readHistory(0, 100'000);
  std::vector<v1::PolicySnapshot> policies = {
      initialState(scenario_.run.experiment, scenario_.shape).policy()};
  for (const auto& record : *records) policies.push_back(record.policy());
  const uint64_t every = scenario_.run.experiment.spec().evaluation().every_updates();
  for (const auto& policy : policies) {
    const uint64_t version = policy.version();
    if (version != 0 && version != version_ && (every == 0 || version % every != 0)) continue;
    for (const auto& unit : planEvaluation(scenario_.run.experiment, policy)) {
      if (!planned_.contains(unit.unit_id())) violate("unit " + unit.unit_id() + " is missing");
    }
  }
}

}  // namespace allot::sim
