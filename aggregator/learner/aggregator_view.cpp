// The part of Aggregator that plans and reads evaluations, and makes status and snapshot.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/worker_names.h"
#include "core/evaluation/evaluation_check.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/spec/spec_yaml.h"
#include "core/worker_beats.h"
#include "store/store_room.h"

namespace allot {
namespace {

// Silence after which a person wants to know why.
constexpr uint64_t kQuietMs = 5'000;
// Refusals in a row that the status reports, if they are also at least as many as live workers.
constexpr size_t kRefusedInARow = 3;
constexpr uint64_t kLookAtStoreMs = 10'000;
// A unit with kMostRefusals refusals, from kMostRefusedWorkers workers, is held back for
// kHoldBackMs at each refusal: more than one machine fails at it.
constexpr uint64_t kMostRefusals = 3;
constexpr size_t kMostRefusedWorkers = 2;
constexpr uint64_t kHoldBackMs = 600'000;
constexpr size_t kRefusalsTold = 5;  // in a snapshot

}  // namespace

Status Aggregator::planIfDue() {
  const uint64_t version = state_.policy().version();
  if (state_.has_evaluation() && state_.evaluated_version() == version) return {};
  if (hoursSpent()) return {};
  if (!evaluationDue(control_.experiment, version) && learning()) return {};
  // Units first: planning them twice does nothing, forgetting them would lose them.
  ALLOT_TRY(
      leadership_->planUnits(planEvaluation(control_.experiment, state_.policy(), measuring())));
  evaluations_settled_ = false;
  last_evaluated_ = options_.now();
  v1::AggregatorState next = state_;
  next.set_evaluated_version(version);
  next.set_has_evaluation(true);
  if (const Status written = leadership_->writeState(next); !written) {
    return loadAgain(written.error());
  }
  state_ = std::move(next);
  return {};
}

bool Aggregator::isMeasuring() const {
  return measureQuestions(run_.experiment.spec()) > 0 && !state_.has_measurement() && !hoursSpent();
}

// Returns true if the first update learns from a measurement that is not complete.
bool Aggregator::awaitsMeasurement() const {
  return isMeasuring() && learnsFromMeasurement(run_.experiment.spec());
}

Measuring Aggregator::measuring() const {
  return measuringOf(run_.experiment, state_, run_.origin ? &*run_.origin : nullptr);
}

// Writes the measurement into the state once all layers are measured, and plans what waits for it.
Status Aggregator::finishMeasuring() {
  if (!isMeasuring()) return {};
  auto measurement = layer_losses_->complete();
  if (!measurement) return {};
  v1::AggregatorState next = state_;
  *next.mutable_measurement() = std::move(*measurement);
  // Measured cells are of version 0, whatever updates have been made since.
  ALLOT_ASSIGN(const auto first, policyAt(0));
  if (!first) return fail(ErrorCode::kInternal, "the first policy is not known");
  // Units first, as in planIfDue(). Those that are planned already stay as they are.
  ALLOT_TRY(leadership_->planUnits(
      planEvaluation(control_.experiment, *first, measuringOf(run_.experiment, next, nullptr))));
  if (const Status written = leadership_->writeState(next); !written) {
    return loadAgain(written.error());
  }
  state_ = std::move(next);
  plans_.erase(0);
  last_evaluated_ = options_.now();
  spdlog::info("the layers are measured");
  return {};
}

Status Aggregator::readEvaluations() {
  if (evaluations_settled_) return {};
  // An earlier process may have planned measured cells, and not written the state that has them.
  ALLOT_TRY(finishMeasuring());
  ALLOT_TRY(takeRecorded());
  uint64_t read = 1;
  while (read > 0) {
    ALLOT_ASSIGN(read, readSomeEvaluations());
  }
  ALLOT_TRY(finishMeasuring());
  ALLOT_ASSIGN(open_units_, store_.openUnits());
  evaluations_settled_ = open_units_ == 0;
  return {};
}

// Accepts or refuses what workers have recorded, unless it waits for an audit.
Status Aggregator::takeRecorded() {
  constexpr int kSlicesInTick = 16;  // somebody may record without end
  constexpr size_t kInSlice = 256;
  for (int slice = 0; slice < kSlicesInTick; ++slice) {
    ALLOT_ASSIGN(auto recorded, store_.readRecorded(kInSlice));
    const size_t read = recorded.size();
    std::vector<Evaluation> right;
    std::set<std::string> waiting;
    for (Evaluation& evaluation : recorded) {
      evaluation.result.DiscardUnknownFields();
      ALLOT_ASSIGN(const Taken taken, takeEvaluation(evaluation));
      if (taken == Taken::kWaits) waiting.insert(evaluation.entry_id);
      if (taken == Taken::kRight) right.push_back(std::move(evaluation));
    }
    if (!right.empty()) ALLOT_TRY(leadership_->acceptEvaluations(right));
    for (const Evaluation& evaluation : right) {
      audits_.counts(evaluation.result);
      shown_evaluations_.erase(evaluation.entry_id);
    }
    const bool whole = read < kInSlice;
    const bool all_wait = waiting.size() == read;
    if (whole) {
      shown_evaluations_ = std::move(waiting);  // others were deleted
      put_aside_.clear();
    }
    if (whole || all_wait) break;
  }
  return {};
}

// Reads one slice of the accepted evaluations. Returns its approximate bytes; 0 if all are read.
Result<uint64_t> Aggregator::readSomeEvaluations() {
  ALLOT_ASSIGN(const auto evaluations, store_.readEvaluations(evaluations_read_, 256));
  uint64_t bytes = 0;
  const auto bounds = boundsOf(run_.experiment, model_->layers());
  for (const Evaluation& evaluation : evaluations) {
    // What updates may have learned from stays, whatever is found later.
    const bool is_used =
        measureOf(evaluation.result.unit()) == Measure::kLayerLoss && state_.has_measurement();
    ALLOT_ASSIGN(const bool refused, is_used ? false : refuseIfLie(evaluation));
    bytes += 1 + evaluation.result.ByteSizeLong();
    evaluations_read_ = evaluation.entry_id;
    if (refused || whyImpossible(evaluation.result, bounds)) continue;  // as in exports
    evaluations_.add(evaluation.result);
    fidelity_.add(evaluation.result);
    layer_losses_->add(evaluation.result);
    question_tasks_.add(evaluation.result);
    evaluation_seconds_ += evaluation.result.seconds();
    answers_bytes_ += evaluation.answers_bytes;
    ++accepted_units_;
  }
  if (bytes == 0) evaluations_caught_up_ = true;
  return bytes;
}

// Checks a recorded evaluation against the plan.
Result<Aggregator::Taken> Aggregator::takeEvaluation(const Evaluation& evaluation) {
  const v1::EvaluationUnit& unit = evaluation.result.unit();
  const std::string& worker = evaluation.result.worker();
  ALLOT_ASSIGN(const v1::EvaluationUnit* planned, plannedUnit(unit));
  const bool as_planned =
      planned != nullptr && planned->SerializeAsString() == unit.SerializeAsString();
  const Status own = checkSignature(worker, signedFor(kSignedEvaluation), evaluation.signed_bytes,
                                    evaluation.signature);
  const std::string refused = own ? whyRefused(worker) : "";
  std::string reason = "nobody planned this unit";
  bool is_decided = true;
  if (as_planned && !own) {
    reason = own.error().message;
  } else if (as_planned && !refused.empty()) {
    reason = refused;
  } else if (as_planned) {
    auto why = whyImpossible(evaluation.result, boundsOf(run_.experiment, model_->layers()));
    const bool is_new = !shown_evaluations_.contains(evaluation.entry_id);
    const std::string too_long =
        !why && is_new ? whyTooLong(worker, evaluation.result.seconds()) : "";
    if (!too_long.empty()) {
      ALLOT_TRY(refuseEvaluation(evaluation, planned, too_long, false));
      return Taken::kRefused;
    }
    if (!why) {
      why = whyOtherTasks(evaluation.result);
      is_decided = !why || !audits_.open();
    }
    if (!why) {
      if (is_new) {
        shown_evaluations_.insert(evaluation.entry_id);
        claimed_time_.add(worker, evaluation.result.seconds());
        audits_.take(evaluation.result);
      }
      if (audits_.holds(worker)) return Taken::kWaits;
      progressed();
      last_evaluated_ = options_.now();
      refused_units_.erase(unit.unit_id());
      question_tasks_.add(evaluation.result);
      return Taken::kRight;
    }
    reason = "it " + *why;
  }
  // What is not the worker's own says nothing about the unit, nor does a lie, or what audits
  // decide.
  ALLOT_TRY(refuseEvaluation(evaluation, planned, reason, own && refused.empty() && is_decided));
  return Taken::kRefused;
}

// Returns why the tasks of its questions are not those of accepted evaluations; nothing if they
// are. Has second workers say which of the two is right.
std::optional<std::string> Aggregator::whyOtherTasks(const v1::EvaluationResult& result) {
  const auto conflict = question_tasks_.find(result);
  if (!conflict) return std::nullopt;
  audits_.doubt(result, conflict->place);
  audits_.doubt(*conflict->earlier, conflict->earlierPlace(result));
  return "says that question " +
         std::to_string(result.scores(static_cast<int>(conflict->place)).question()) +
         " is of another task than the accepted evaluation unit " +
         conflict->earlier->unit().unit_id().substr(0, 200) + " of worker " +
         printable(conflict->earlier->worker(), 100) +
         " says: `allot verify --measure` names who is wrong";
}

Result<bool> Aggregator::refuseIfLie(const Evaluation& evaluation) {
  const std::string lies = audits_.lies(evaluation.result.worker());
  if (lies.empty()) return false;
  ALLOT_ASSIGN(const v1::EvaluationUnit* planned, plannedUnit(evaluation.result.unit()));
  ALLOT_TRY(refuseEvaluation(evaluation, planned, "its worker lies: " + lies, false));
  return true;
}

// Refuses an evaluation. Its unit is opened again if it is planned and hours are left. of_unit: the
// refusal may mean that nobody can do the unit.
Status Aggregator::refuseEvaluation(const Evaluation& evaluation, const v1::EvaluationUnit* planned,
                                    const std::string& reason, bool of_unit) {
  const v1::EvaluationUnit* reopen = hoursSpent() ? nullptr : planned;
  const bool noted = reopen != nullptr && of_unit;
  const uint64_t hold_ms = noted ? noteRefusal(evaluation.result, reason) : 0;
  const RefusalKind kind = refusalOf(evaluation.result.worker());
  ALLOT_TRY(leadership_->rejectEvaluation(evaluation, kind, reason, reopen, hold_ms));
  events_.refused(kind);
  if (kind != RefusalKind::kSuperseded) ++refused_in_a_row_;
  last_error_ =
      "refused evaluation " + evaluation.result.unit().unit_id().substr(0, 200) + ": " + reason;
  last_error_unix_ms_ = options_.unix_now();
  spdlog::warn("{}", last_error_);
  return {};
}

// Notes a refusal. Returns the ms for which the unit is held back.
uint64_t Aggregator::noteRefusal(const v1::EvaluationResult& result, const std::string& reason) {
  UnitRefusals& refusals = refused_units_[result.unit().unit_id()];
  ++refusals.count;
  if (refusals.workers.size() < kMostRefusals) refusals.workers.insert(result.worker());
  refusals.reason = reason;
  const bool held =
      refusals.count >= kMostRefusals && refusals.workers.size() >= kMostRefusedWorkers;
  return held ? kHoldBackMs : 0;
}

// Returns why a unit is held back, the first by id of those that were refused often enough and not
// accepted since; "" if there is none.
std::string Aggregator::heldBack() const {
  for (const auto& [unit, refusals] : refused_units_) {
    if (refusals.count < kMostRefusals || refusals.workers.size() < kMostRefusedWorkers) continue;
    std::string workers;
    for (const std::string& worker : refusals.workers) {
      workers += (workers.empty() ? "" : ", ") + worker.substr(0, 100);
    }
    return "evaluation unit " + unit.substr(0, 200) + " was refused " +
           counted(refusals.count, "time") + ", from " + workers + ": " + refusals.reason +
           "; it is held back for 10 minutes each time: see whether the workers' build is the "
           "aggregator's";
  }
  return "";
}

// Returns the planned unit with the id of `unit`; null if there is none. Valid until the next call.
Result<const v1::EvaluationUnit*> Aggregator::plannedUnit(const v1::EvaluationUnit& unit) {
  const std::optional<uint64_t> named = versionOfUnit(unit.unit_id());
  if (!named || *named > state_.policy().version()) return nullptr;
  const uint64_t version = *named;
  auto plan = plans_.find(version);
  if (plan == plans_.end()) {
    ALLOT_ASSIGN(const auto policy, policyAt(version));
    if (!policy) return nullptr;
    constexpr size_t kPlans = 8;  // older ones are made again when asked for
    if (plans_.size() == kPlans) plans_.erase(plans_.begin());
    plan = plans_.try_emplace(version).first;
    for (auto& planned : planEvaluation(control_.experiment, *policy, measuring())) {
      plan->second.emplace(planned.unit_id(), planned);
    }
  }
  const auto found = plan->second.find(unit.unit_id());
  return found == plan->second.end() ? nullptr : &found->second;
}

// Returns the policy of a version up to the current one; nothing if the store does not have it.
Result<std::optional<v1::PolicySnapshot>> Aggregator::policyAt(uint64_t version) {
  if (const v1::PolicySnapshot* known = policyOf(version)) return *known;
  if (version == 0) {
    const v1::Origin* origin = run_.origin ? &*run_.origin : nullptr;
    return initialState(run_.experiment, shapeOf(*model_), origin).policy();
  }
  ALLOT_ASSIGN(const auto kept, store_.readPolicies(version, 1));
  if (!kept.empty()) return kept[0];
  ALLOT_ASSIGN(const auto records, store_.readHistory(version - 1, 1));
  if (records.empty() || records[0].version() != version) return std::nullopt;
  return records[0].policy();
}

// Returns why the run makes no progress, or "". A worker at work is progress unless units are held
// back or results refused: an episode or a unit of a large model takes minutes.
std::string Aggregator::whyWaiting() {
  if (finished()) return "";
  if (phase_ == Phase::kPaused) return "it is paused: allot resume";
  if (const std::string disputed = audits_.whyWaiting(); !disputed.empty()) return disputed;
  if (loaded_ && options_.now() - last_progress_ < kQuietMs) return "";
  const auto workers = store_.listWorkers();
  if (!workers) return workers.error().message;
  if (const std::string why = whyNobodyCanWork(*workers); !why.empty()) return why;
  if (!loaded_) return "no worker has loaded the model yet";
  if (const std::string held_back = heldBack(); !held_back.empty()) return held_back;
  const size_t alive = aliveWorkers(*workers);
  if (refused_in_a_row_ >= std::max<size_t>(alive, kRefusedInARow)) {
    return "the last " + counted(refused_in_a_row_, "result") + " were refused (" + last_error_ +
           ")";
  }
  if (std::any_of(workers->begin(), workers->end(), isAtWork)) {
    return isStuck(last_progress_) ? whyStuck() : "";
  }
  const std::string idle = ", and none of the " + counted(alive, "worker") + " alive is at work";
  if (open_units_ > 0) return counted(open_units_, "evaluation unit") + " to do" + idle;
  return "waiting for episodes: " + std::to_string(held_.size()) + " of " +
         std::to_string(episodesPerUpdate()) + " are in" + idle;
}

std::string Aggregator::whyStuck() {
  std::set<std::string> names;
  if (const auto workers = store_.listWorkers()) {
    for (const v1::WorkerBeat& beat : *workers) {
      if (isAtWork(beat)) names.insert(beat.worker());
    }
  }
  return "no result has counted for " + std::to_string((options_.now() - last_progress_) / 60'000) +
         " minutes; at work: " + namesOf(names) +
         ": see their logs; if no worker of yours has such a name, give the workers new accounts "
         "(allot acl --out NEW)";
}

// Reads how full the store is, at most every kLookAtStoreMs. On an error the last values stay.
void Aggregator::lookAtStore() {
  const uint64_t now = options_.now();
  if (!loaded_ || !may_ask_fill_) return;
  if (store_looked_ && now - *store_looked_ < kLookAtStoreMs) return;
  store_looked_ = now;
  const auto fill = store_.fill();
  if (!fill) {
    may_ask_fill_ = fill.error().code == ErrorCode::kUnavailable;
    if (!may_ask_fill_) {
      spdlog::warn("how full the store is, and whether it then evicts keys: not known: {}",
                   fill.error().message);
    }
    return;
  }
  store_fill_ = *fill;
  updates_until_full_ = updatesUntilFull(store_fill_, nextUpdateBytes());
  const uint64_t done = state_.policy().version();
  const std::string small =
      learning() ? whyTooSmall(updates_until_full_, maxUpdates() - done) : std::string();
  if (!small.empty() && !told_too_small_) spdlog::warn("{}", small);
  told_too_small_ = !small.empty();
}

// Estimates the bytes of the next update in the store, from the newest update or, before the first,
// from the held results. 0: unknown.
uint64_t Aggregator::nextUpdateBytes() {
  const uint64_t version = state_.policy().version();
  uint64_t record_bytes = 0;
  uint64_t results = episodesPerUpdate();
  if (version > 0) {
    const auto newest = store_.readHistory(version - 1, 1);
    if (!newest || newest->empty()) return 0;
    record_bytes = newest->front().ByteSizeLong();
    results = static_cast<uint64_t>(newest->front().results_size());
  } else if (!held_.empty()) {
    for (const auto& [place, held] : held_) record_bytes += held.entry.bytes;
    record_bytes = record_bytes * results / held_.size();
  }
  if (record_bytes == 0) return 0;
  double units = 0;
  if (const uint32_t every = control_.experiment.spec().evaluation().every_updates(); every > 0) {
    // Only what depends on the policy is measured again.
    v1::PolicySnapshot later = state_.policy();
    later.set_version(version + 1);
    units = static_cast<double>(planEvaluation(control_.experiment, later).size()) / every;
  }
  const auto recorded = static_cast<double>(std::max<uint64_t>(1, accepted_units_));
  return bytesOfUpdate(record_bytes, results, units,
                       static_cast<double>(answers_bytes_) / recorded);
}

Status Aggregator::publishStatus() {
  const uint64_t now = options_.now();
  if (status_published_ && now - *status_published_ < options_.status_ms && !finished()) return {};
  lookAtStore();
  status_published_ = now;
  return leadership_->publishStatus(ownStatus());
}

v1::AggregatorStatus Aggregator::ownStatus() {
  v1::AggregatorStatus status;
  status.set_holder(options_.holder);
  status.set_phase(std::string(wordOf(phase_)));
  status.set_waiting(whyWaiting());
  status.set_last_error(last_error_);
  status.set_last_error_unix_ms(last_error_unix_ms_);
  status.set_unix_ms(options_.unix_now());
  status.set_page(options_.page);
  status.set_edit_refused(edit_refused_);
  status.set_build(options_.build);
  status.set_store_used_bytes(store_fill_.used_bytes);
  status.set_store_limit_bytes(store_fill_.limit_bytes);
  if (updates_until_full_) status.set_updates_until_full(*updates_until_full_);
  status.set_finished_unix_ms(finished_unix_ms_);
  if (loaded_) *status.mutable_audits() = audits_.status();
  return status;
}

// Reads the time of the end from the stored status before the first status of this process
// overwrites it.
void Aggregator::rememberTheEnd() {
  if (control_.desired != Desired::kFinished) finished_unix_ms_ = 0;
  const bool known = end_looked_up_ || finished_unix_ms_ != 0;
  end_looked_up_ = control_.desired == Desired::kFinished;
  if (known || !end_looked_up_) return;
  const auto told = store_.readStatus();
  if (told && *told) finished_unix_ms_ = (*told)->finished_unix_ms();
}

void Aggregator::setEditRefused(const std::string& sentence) {
  if (sentence == edit_refused_) return;
  edit_refused_ = sentence;
  status_published_.reset();  // with the next tick
}

RunSnapshot Aggregator::snapshot() {
  RunSnapshot snapshot{run_,
                       model_,
                       control_.experiment,
                       phase_,
                       "",
                       last_error_,
                       state_,
                       history_.records(),
                       evaluations_.cells(),
                       fidelity_.summaries(),
                       {},
                       {},
                       edit_refused_,
                       open_units_};
  snapshot.told = ownStatus();
  snapshot.waiting = snapshot.told->waiting();
  if (auto workers = store_.listWorkers()) snapshot.workers = std::move(*workers);
  if (auto counts = store_.readRefusalCounts()) snapshot.refused = std::move(*counts);
  if (const auto waiting = store_.inboxSize()) snapshot.inbox_entries = *waiting;
  if (auto refusals = store_.readRefusals(kRefusalsTold)) snapshot.refusals = std::move(*refusals);
  snapshot.store_fill = store_fill_;
  snapshot.desired = control_.desired;
  snapshot.lease.held = leads();
  if (snapshot.lease.held) snapshot.lease.holder = options_.holder;
  snapshot.first = firstMeans(snapshot.history);
  snapshot.last = lastMeans(snapshot.history);
  if (!snapshot.history.empty()) {
    snapshot.last_update_unix_ms = snapshot.history.back().committed_unix_ms();
  }
  snapshot.evaluation_seconds = evaluation_seconds_;
  snapshot.tickets_reached = tickets_reached_;
  return snapshot;
}

}  // namespace allot
