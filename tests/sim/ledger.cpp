#include "tests/sim/ledger.h"

#include <algorithm>

#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "tests/sim/fake_engine.h"

namespace allot::sim {
namespace {

// A result as the engine made it: what the worker adds is taken away.
std::string contentOf(v1::EpisodeResult result) {
  result.clear_result_id();
  result.clear_worker();
  result.clear_build();
  result.clear_finished_unix_ms();
  return result.SerializeAsString();
}

std::string named(uint64_t number) { return std::to_string(number); }

}  // namespace

Ledger::Ledger(const Scenario* scenario, const std::function<std::unique_ptr<Store>()>& open,
               std::function<void(const std::string&)> violated)
    : scenario_(*scenario),
      eye_(open()),
      late_eye_(open()),
      violated_(std::move(violated)),
      replay_(scenario->run.experiment, initialState(scenario->run.experiment, scenario->shape),
              scenario->run.synchronous, scenario->policy_window) {
  control_.experiment = scenario_.run.experiment;
  changedControl(control_, true);
}

void Ledger::violate(const std::string& sentence) { violated_(sentence); }

// --- workers ---

void Ledger::made(const std::string& worker, const v1::EpisodeResult& result) {
  made_[{worker, result.ticket()}].insert(contentOf(result));
}

void Ledger::handedOut(const std::vector<uint64_t>& tickets) {
  for (uint64_t ticket : tickets) {
    const bool fresh = handed_out_.insert(ticket).second;
    if (!fresh && !scenario_.run.synchronous) {
      violate("ticket " + named(ticket) + " was handed out twice");
    }
    unheard_.insert(ticket);
  }
}

void Ledger::heard(const std::string& worker, const std::vector<uint64_t>& tickets) {
  for (uint64_t ticket : tickets) {
    unheard_.erase(ticket);
    in_hand_[worker].insert(ticket);
  }
}

std::optional<InboxEntry> Ledger::newEntry() {
  auto entries = eye_->readInbox(1000, 0);
  if (!entries || entries->size() != 1) {
    violate("the inbox did not grow by one entry");
    return std::nullopt;
  }
  return std::move(entries->front());
}

void Ledger::pushed(const std::string& worker, const v1::EpisodeResult& result,
                    const Result<PushOutcome>& outcome) {
  const std::string& id = result.result_id();
  if (!outcome) return violate("push of " + id + ": " + outcome.error().message);
  if (*outcome == PushOutcome::kFull) return;
  const std::string payload = result.SerializeAsString();
  const auto known = accepted_.find(id);
  if (*outcome == PushOutcome::kDuplicate) {
    if (known == accepted_.end())
      violate("result " + id + " was refused as there, but was not");
    else if (known->second != payload)
      violate("two results have the name " + id);
    return;
  }
  if (known != accepted_.end()) violate("result " + id + " was taken in twice");
  if (!made_[{worker, result.ticket()}].contains(contentOf(result))) {
    violate("result " + id + " is not what the engine made");
  }
  accepted_[id] = payload;
  arrived_.insert(result.ticket());
  in_hand_[worker].erase(result.ticket());
  const auto entry = newEntry();
  if (!entry) return;
  if (entry->payload != payload || entry->result_id != id) {
    violate("the inbox does not hold result " + id + " as it was pushed");
  }
  entries_[entry->entry_id] = {id, payload, true, result.ticket(), result.policy_version(), ""};
  genuine_entries_.push_back(entry->entry_id);
}

void Ledger::injected(bool named) {
  const auto entry = newEntry();
  if (!entry) return;
  if (entry->result_id.empty() == named) {
    violate("whether entry " + entry->entry_id + " has a name is told wrongly");
  }
  if (named) taken_names_.insert(entry->result_id);
  entries_[entry->entry_id] = {entry->result_id, entry->payload, false, 0, 0, ""};
}

void Ledger::claimed(const Result<std::vector<v1::EvaluationUnit>>& units, uint64_t now_ms) {
  if (!units) return violate("units cannot be claimed: " + units.error().message);
  for (const auto& unit : *units) cared_for_[unit.unit_id()] = now_ms;
  if (!units->empty() || now_ms < scenario_.calm_ms || units_lost_) return;
  // There was nothing to claim: so somebody is at each unit that is open, or was a claim ago.
  const auto open = eye_->listUnits();
  const auto recorded = eye_->readRecorded(100'000);
  if (!open || !recorded) return violate("the open units cannot be listed");
  std::set<std::string> waiting;  // for an aggregator
  for (const Evaluation& evaluation : *recorded) waiting.insert(evaluation.result.unit().unit_id());
  for (const auto& unit : *open) {
    const std::string& id = unit.unit_id();
    if (waiting.contains(id)) continue;
    const bool in_hand =
        std::any_of(units_in_hand_.begin(), units_in_hand_.end(),
                    [&](const auto& worker) { return worker.second.contains(id); });
    const uint64_t since = std::max(scenario_.calm_ms, cared_for_[id]);
    if (!in_hand && now_ms > since + scenario_.longestClaimMs()) {
      violate("unit " + id + " can be claimed by nobody, and nobody has been at it for " +
              named((now_ms - since) / 1000) + " s");
    }
  }
}

void Ledger::heardClaim(const std::string& worker, const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) units_in_hand_[worker].insert(unit.unit_id());
}

void Ledger::renewed(const std::vector<std::string>& unit_ids, uint64_t now_ms) {
  for (const std::string& id : unit_ids) cared_for_[id] = now_ms;
}

void Ledger::told(const v1::AggregatorStatus& status) {
  for (const v1::AuditedWorker& worker : status.audits().workers()) {
    if (worker.lies().empty()) continue;
    if (!liars_.contains(worker.worker())) {
      violate("worker " + worker.worker() + " is honest, but is said to lie: " + worker.lies());
    }
  }
}

void Ledger::evaluated(const v1::EvaluationUnit& unit) {
  const auto plan = planned_.find(unit.unit_id());
  if (plan != planned_.end() && plan->second.question_count() != unit.question_count()) return;
  if (++evaluated_[unit.unit_id()] > 1 && scenario_.faultless()) {
    violate("unit " + unit.unit_id() + " was evaluated twice, though nothing went wrong");
  }
}

void Ledger::leftUnit(const std::string& worker, const v1::EvaluationUnit& unit, uint64_t now_ms) {
  cared_for_[unit.unit_id()] = now_ms;
  units_in_hand_[worker].erase(unit.unit_id());
}

void Ledger::leftUnits(const std::string& worker, uint64_t now_ms) {
  for (const std::string& id : units_in_hand_[worker]) cared_for_[id] = now_ms;
  units_in_hand_.erase(worker);
}

void Ledger::workerKilled(const std::string& worker, uint64_t now_ms) {
  leftUnits(worker, now_ms);
  excused_.merge(in_hand_[worker]);
  in_hand_.erase(worker);
}

void Ledger::workerLeft(const std::string& worker, size_t dropped_results, size_t aborted_episodes,
                        uint64_t now_ms) {
  leftUnits(worker, now_ms);
  std::set<uint64_t>& tickets = in_hand_[worker];
  if (tickets.size() > dropped_results + aborted_episodes) {
    violate("worker " + worker + " left with " + named(tickets.size()) +
            " tickets in hand, but says that it dropped " + named(dropped_results) +
            " results and gave up " + named(aborted_episodes) + " episodes");
  }
  excused_.merge(tickets);
  in_hand_.erase(worker);
}

// --- aggregators ---

void Ledger::led(const std::string& holder, const Result<Lease>& lease) {
  if (!lease) return;
  if (lease->remaining_ms > kLeaseMs) {
    violate("the lease is to last for another " + named(lease->remaining_ms / 1000) + " s");
  }
  if (!lease->held) return;
  const auto [leader, fresh] = leaders_.emplace(lease->epoch, holder);
  if (leader->second != holder) {
    violate("epoch " + named(lease->epoch) + " belongs to " + leader->second + " and to " + holder);
  }
  if (lease->epoch < leaders_.rbegin()->first) {
    violate("the lease went back to epoch " + named(lease->epoch));
  }
  first_epoch_.emplace(holder, lease->epoch);
}

bool Ledger::displaced(const std::string& holder) const {
  const auto mine = first_epoch_.find(holder);
  return mine != first_epoch_.end() && leaders_.rbegin()->first > mine->second;
}

void Ledger::wroteUnder(uint64_t epoch, const char* what, const Status& status) {
  if (!status) return;
  const auto lease = eye_->readLease();
  if (!lease || lease->epoch != epoch) {
    violate(std::string(what) + " of epoch " + named(epoch) + " took effect under epoch " +
            named(lease ? lease->epoch : 0));
  }
}

void Ledger::wroteState(uint64_t epoch, const Status& status) {
  wroteUnder(epoch, "writeState", status);
  checkVersions();
}

void Ledger::rejected(const InboxEntry& entry, RefusalKind kind, const Status& status) {
  if (!status) return;
  const auto found = entries_.find(entry.entry_id);
  if (found == entries_.end()) return violate("entry " + entry.entry_id + " was never there");
  Entry& mine = found->second;
  if (!mine.fate.empty()) return;  // gone already: no effect
  mine.fate = wordOf(kind);
  refusals_.emplace(wordOf(kind));
  if (!mine.genuine) return;
  if (!mayBeRefused(entry.entry_id, mine)) {
    violate("result " + mine.result_id + ", which its worker made and pushed, was refused as " +
            std::string(wordOf(kind)));
  }
}

// Whether a result that is as its worker made it may be refused all the same.
bool Ledger::mayBeRefused(const std::string& entry_id, const Entry& entry) const {
  v1::EpisodeResult result;
  if (entry.fate == "invalid" && result.ParseFromString(entry.payload) &&
      liars_.contains(result.worker())) {
    return true;
  }
  if (entry.fate == "stale") {
    const bool dropped = drop_ever_ && version_ > entry.policy_version + least_lag_;
    return dropped || version_ >= entry.policy_version + scenario_.policy_window;
  }
  if (entry.fate == "superseded" && !liars_.empty()) return true;  // put aside
  // Its name is that of another entry.
  if (entry.fate == "invalid") return taken_names_.contains(entry.result_id);
  if (entry.fate != "superseded" || !scenario_.run.synchronous) return false;
  if (entry.policy_version != version_) return true;
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& item) {
    const Entry& other = item.second;
    return item.first != entry_id && other.genuine && other.ticket == entry.ticket &&
           (other.fate.empty() || other.fate == "consumed");
  });
}

void Ledger::evaluationRejected(const Evaluation& evaluation, RefusalKind kind,
                                const Status& status) {
  if (!status || !rejected_evaluations_.insert(evaluation.entry_id).second) return;
  refusals_.emplace(wordOf(kind));
  const v1::EvaluationUnit& unit = evaluation.result.unit();
  const auto plan = planned_.find(unit.unit_id());
  // Of two workers that disagree the results are put aside, if no other decides.
  const bool aside = kind == RefusalKind::kSuperseded && !liars_.empty();
  if (plan != planned_.end() && isTrue(plan->second, evaluation.result) && !aside &&
      !liars_.contains(evaluation.result.worker())) {
    violate("the evaluation of unit " + unit.unit_id() + " was refused, though it is right");
  }
}

void Ledger::consume(const Commit& commit, int index) {
  const auto& [entry_id, result_id] = commit.consumed[static_cast<size_t>(index)];
  const auto found = entries_.find(entry_id);
  if (found == entries_.end()) return violate("entry " + entry_id + " was never there");
  Entry& mine = found->second;
  const std::string update = "update " + named(commit.record.version()) + " consumed ";
  if (!mine.genuine) violate(update + result_id + ", which no worker pushed");
  if (!mine.fate.empty()) violate(update + result_id + ", which was " + mine.fate + " before");
  if (!consumed_.insert(result_id).second) violate(update + result_id + " a second time");
  mine.fate = "consumed";
  if (index >= commit.record.results_size()) return violate(update + "more than its record holds");
  const v1::EpisodeResult& recorded = commit.record.results(index);
  if (mine.result_id != result_id || recorded.SerializeAsString() != mine.payload) {
    violate(update + result_id + " with other content than was pushed");
  }
}

void Ledger::committed(const std::string& holder, uint64_t epoch, const Commit& commit,
                       const Status& status) {
  if (!status) return checkVersions();
  wroteUnder(epoch, "a commit", status);
  if (leaders_[epoch] != holder) {
    violate(holder + " committed under epoch " + named(epoch) + " of " + leaders_[epoch]);
  }
  if (epoch < committed_epoch_) violate("the epochs of commits went back");
  committed_epoch_ = epoch;
  if (commit.record.version() != version_ + 1) {
    violate("update " + named(commit.record.version()) + " followed " + named(version_));
  }
  version_ = commit.record.version();
  for (int i = 0; i < static_cast<int>(commit.consumed.size()); ++i) consume(commit, i);
  if (commit.record.results_size() != static_cast<int>(commit.consumed.size())) {
    violate("update " + named(version_) + " records other results than it consumed");
  }
  if (const Status replayed = replay_.next(commit.record); !replayed) {
    violate("replay: " + replayed.error().message);
  }
  checkVersions();
}

// Policy, state and history speak of one version, and it is the one that the ledger knows.
void Ledger::checkVersions() {
  const auto policy = eye_->readPolicy();
  if (!policy || !*policy) return;  // not begun
  const auto state = eye_->readState();
  const auto history = eye_->readHistory(version_ == 0 ? 0 : version_ - 1, 10);
  if (!state || !*state || !history) return violate("the store lost the run's state");
  const uint64_t last = history->empty() ? 0 : history->back().version();
  if ((*policy)->snapshot.version() != version_ || (*state)->policy().version() != version_ ||
      last != version_ || history->size() > 1) {
    violate("the policy has version " + named((*policy)->snapshot.version()) + ", the state " +
            named((*state)->policy().version()) + ", the history " + named(last) + ", but " +
            named(version_) + " updates were made");
  }
}

void Ledger::planned(const std::vector<v1::EvaluationUnit>& units, const Status& status) {
  if (!status) return;
  for (const auto& unit : units) {
    const auto [known, fresh] = planned_.emplace(unit.unit_id(), unit);
    if (fresh && control_.desired == Desired::kFinished) planned_late_.insert(unit.unit_id());
    if (!fresh && known->second.SerializeAsString() != unit.SerializeAsString()) {
      violate("unit " + unit.unit_id() + " was planned in two ways");
    }
  }
}

void Ledger::changedControl(const Control& control, const Result<bool>& changed) {
  if (!changed || !*changed) return;
  control_ = control;
  most_updates_ =
      std::max<uint64_t>(most_updates_, control.experiment.spec().update().max_updates());
  const v1::Staleness& staleness = control.experiment.spec().staleness();
  if (modeOf(staleness) != StalenessMode::kDrop) return;
  drop_ever_ = true;
  least_lag_ = std::min<uint64_t>(least_lag_, staleness.max_lag());
}

// --- for strangers ---

const std::string* Ledger::anyPayload(uint64_t pick) const {
  if (genuine_entries_.empty()) return nullptr;
  return &entries_.at(genuine_entries_[static_cast<size_t>(pick % genuine_entries_.size())])
              .payload;
}

const std::string* Ledger::anyConsumedPayload(uint64_t pick) const {
  std::vector<const std::string*> consumed;
  for (const std::string& entry_id : genuine_entries_) {
    const Entry& entry = entries_.at(entry_id);
    if (entry.fate == "consumed") consumed.push_back(&entry.payload);
  }
  return consumed.empty() ? nullptr : consumed[static_cast<size_t>(pick % consumed.size())];
}

const v1::EvaluationUnit* Ledger::anyPlannedUnit(uint64_t pick) const {
  if (planned_.empty()) return nullptr;
  return &std::next(planned_.begin(), static_cast<std::ptrdiff_t>(pick % planned_.size()))->second;
}

}  // namespace allot::sim
