#include "aggregator/learner/aggregator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "core/learning/learning_checks.h"
#include "core/learning/update.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"
#include "core/spec/task_catalogue.h"
#include "core/worker_beats.h"
#include "store/checks.h"

namespace allot {

namespace {

// Without a result that counts, beats of workers at work no longer hold tickets and units.
constexpr uint64_t kStuckMs = 30 * 60'000;

}  // namespace

Aggregator::Aggregator(Store* store, RunSpec run, AggregatorOptions options)
    : store_(*store),
      run_(std::move(run)),
      options_(std::move(options)),
      events_(options_.events != nullptr ? *options_.events : nobody_),
      evaluations_(run_.experiment, EvaluationTable::Keep::kNewest),
      fidelity_(run_.experiment.spec(), true),
      audits_(options_.audit_seed, !runsCode(run_.experiment.spec().task())) {
  control_.experiment = run_.experiment;
}

uint64_t Aggregator::maxUpdates() const {
  const v1::Spec& spec = control_.experiment.spec();
  return spec.has_update() ? spec.update().max_updates() : 0;
}

uint64_t Aggregator::episodesPerUpdate() const {
  return control_.experiment.spec().update().episodes_per_update();
}

uint64_t Aggregator::mostOfUpdate() const {
  return takesAllResults(control_.experiment.spec().update()) ? kMostResults : episodesPerUpdate();
}

Result<bool> Aggregator::tick() {
  auto more = work();
  if (!more) {
    last_error_ = more.error().message;
    last_error_unix_ms_ = options_.unix_now();
    return more;
  }
  ALLOT_TRY(lead());  // slow calls may have made the tick long
  // The status is for people: of its errors only kFenced ends the tick.
  if (const Status told = publishStatus(); !told && told.error().code == ErrorCode::kFenced) {
    return tl::unexpected(told.error());
  }
  return more;
}

Result<bool> Aggregator::work() {
  ALLOT_TRY(lead());
  // After each renewal of the lease, since workers may never send a result that shows a newer
  // version.
  if (loaded_ && lease_renewed_ != newest_checked_) {
    ALLOT_TRY(checkNewest());
    newest_checked_ = lease_renewed_;
  }
  ALLOT_TRY(readControl());
  rememberTheEnd();
  if (!loaded_) {
    ALLOT_ASSIGN(const bool started, start());
    if (!started) {
      phase_ = control_.desired == Desired::kStopped ? Phase::kStopped : Phase::kStarting;
      return phase_ == Phase::kStarting;  // no worker has told the model's facts yet
    }
  }
  ALLOT_ASSIGN(const bool caught_up, catchUp());
  if (!caught_up) return true;
  if (isOver(control_.desired)) {
    ALLOT_TRY(readEvaluations());
    phase_ = control_.desired == Desired::kStopped ? Phase::kStopped : Phase::kFinished;
    return false;
  }
  ALLOT_TRY(audit());
  ALLOT_TRY(planIfDue());
  ALLOT_TRY(collect());
  if (batchReady() && !awaitsMeasurement()) ALLOT_TRY(update());
  ALLOT_TRY(readEvaluations());
  ALLOT_TRY(reissueMissing());
  ALLOT_ASSIGN(const bool done, finishIfDone());
  if (done) return false;
  phase_ = control_.desired == Desired::kPaused ? Phase::kPaused
           : open_units_ > 0                    ? Phase::kEvaluating
                                                : Phase::kRunning;
  return true;
}

Status Aggregator::lead() {
  const bool fresh = options_.now() - lease_renewed_ < options_.lease_ms / 3;
  return leadership_ && fresh ? Status() : takeLease();
}

Status Aggregator::takeLease() {
  const uint64_t now = options_.now();
  ALLOT_ASSIGN(const Lease lease, store_.acquireLease(options_.holder, options_.lease_ms));
  if (!lease.held) {
    if (leadership_) {
      return fail(ErrorCode::kFenced, "aggregator " + lease.holder + " leads this run now");
    }
    return fail(ErrorCode::kUnavailable,
                "aggregator " + lease.holder + " still holds the lease of this run");
  }
  if (leadership_ && lease.epoch != leadership_->epoch()) {
    return fail(ErrorCode::kFenced, "the lease of this run was lost in the meantime");
  }
  leadership_.emplace(store_, lease.epoch);
  lease_renewed_ = now;
  return mendKeys(false);
}

// A process with a worker's account can break keys of the run. Mending costs what is in these keys,
// and not the run.
Status Aggregator::mendKeys(bool forget_model) {
  if (control_.revision == 0) ALLOT_TRY(readControl());
  // A worker renews its claims by beats, also if it never comes to a result.
  const bool stuck = loaded_ && open_units_ > 0 && isStuck(last_evaluated_);
  if (stuck) {
    last_evaluated_ = options_.now();
    spdlog::warn("no evaluation was accepted for {} minutes: the claims on units are ended",
                 kStuckMs / 60'000);
  }
  // A synchronous run hands lost tickets of one update out again, others none.
  ALLOT_ASSIGN(
      const auto mended,
      leadership_->repair({.tickets_handed_out = next_ticket_,
                           .inbox_entries = inboxCapacity(kInboxEntries, control_.experiment),
                           .reissued_tickets = run_.synchronous ? episodesPerUpdate() : 0,
                           .end_claims = stuck,
                           .forget_model = forget_model}));
  if (mended.empty()) return {};
  std::string names;
  for (const std::string& key : mended) names += (names.empty() ? "" : ", ") + key;
  last_error_ =
      "a process with a worker's account broke keys of the run, which are mended: " + names +
      ": if it goes on, give the workers the accounts of a new folder (allot acl --out NEW)";
  last_error_unix_ms_ = options_.unix_now();
  spdlog::warn("{}", last_error_);
  loaded_ = false;
  return {};
}

Status Aggregator::readControl() {
  ALLOT_ASSIGN(auto control, store_.readControl());
  if (!control) return fail(ErrorCode::kData, "the run is not in the store any more: restore it");
  if (control->revision == control_.revision) return {};
  if (control_.revision != 0) {
    for (const SpecChange& change : specChanges(control_.experiment, control->experiment)) {
      spdlog::info("{} is now {} (was {})", change.path, change.to, change.from);
    }
  }
  control_ = std::move(*control);
  // Another build or a person may have written the experiment in force.
  ALLOT_TRY(checkWords(control_.experiment, "the run's experiment"));
  return checkLiveChanges(run_.experiment, control_.experiment, run_.synchronous);
}

// Publishes the first policy if there is none, and loads the run. Returns false while no worker has
// stored the model's facts.
Result<bool> Aggregator::start() {
  auto model = store_.readModel();
  const bool unreadable = !model && model.error().code == ErrorCode::kData;
  if (!model && !unreadable) return tl::unexpected(model.error());
  if (!unreadable && !*model) return false;
  const uint32_t layers = unreadable ? 0 : (*model)->layers();
  if (layers < 1 || layers > kMaxScheduleEntries) {
    // No worker of ours wrote them; one that starts will say what the model is.
    ALLOT_TRY(mendKeys(true));
    return false;
  }
  model_ = std::move(*model);
  ALLOT_TRY(checkAgainstModel(run_.experiment, shapeOf(*model_)));
  // Runs of tests may name none.
  if (!run_.arithmetic.empty()) ALLOT_TRY(store::checkArithmetic(run_, "the run"));
  ALLOT_ASSIGN(const auto begun, store_.readState());
  // A run that has begun may have been stored by a build that did not check this.
  if (!begun) {
    ALLOT_TRY(checkGrid(run_.experiment, layers));
    ALLOT_TRY(checkEffects(run_.experiment, layers));
  }
  const v1::Origin* origin = run_.origin ? &*run_.origin : nullptr;
  const v1::AggregatorState initial = initialState(run_.experiment, shapeOf(*model_), origin);
  if (initial.policy().logits_size() != static_cast<int64_t>(layers)) {
    return badInput("the run was forked from one whose model has " +
                    std::to_string(initial.policy().logits_size()) +
                    " layers, but this model has " + std::to_string(layers) +
                    ": fork with a model of as many layers");
  }
  if (origin != nullptr)
    ALLOT_TRY(checkBudgets(run_.experiment, shapeOf(*model_), origin->state()));
  ALLOT_TRY(leadership_->publishInitial(initial.policy(), initial));
  ALLOT_TRY(load());
  return true;
}

bool Aggregator::isStuck(uint64_t since) const { return options_.now() - since >= kStuckMs; }

void Aggregator::progressed() {
  last_progress_ = options_.now();
  refused_in_a_row_ = 0;
}

const v1::PolicySnapshot* Aggregator::policyOf(uint64_t version) const {
  if (policies_.empty() || version < policies_.front().version()) return nullptr;
  const uint64_t place = version - policies_.front().version();
  return place < policies_.size() ? &policies_[place] : nullptr;
}

bool Aggregator::learning() const {
  return control_.experiment.spec().has_update() && state_.policy().version() < maxUpdates() &&
         !hoursSpent() && !goalReached();
}

// What comes after the last update stays in the inbox, for the case that the run is extended.
Status Aggregator::collect() {
  if (batchReady() && !awaitsMeasurement()) return {};
  if (!learning() || batchReady()) {
    options_.rest(options_.wait_ms);
    return {};
  }
  ALLOT_ASSIGN(const auto entries, store_.readInbox(mostOfUpdate(), options_.wait_ms));
  if (entries.empty()) return {};
  const Status taken = takeAll(entries);
  if (!taken) loaded_ = false;  // the rest of these entries is read again
  return taken;
}

Status Aggregator::takeAll(const std::vector<InboxEntry>& entries) {
  std::vector<std::optional<v1::EpisodeResult>> results(entries.size());
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < entries.size(); ++i) {
    v1::EpisodeResult result;
    if (!result.ParseFromString(entries[i].payload)) continue;
    // Unknown fields would stay in the history for ever.
    result.DiscardUnknownFields();
    tickets.push_back(result.ticket());
    results[i] = std::move(result);
  }
  ALLOT_ASSIGN(const auto counted, store_.countedTickets(tickets));
  const std::set<uint64_t> counted_before(counted.begin(), counted.end());
  const uint64_t highest = tickets.empty() ? 0 : *std::max_element(tickets.begin(), tickets.end());
  if (highest >= next_ticket_) {
    ALLOT_ASSIGN(next_ticket_, store_.nextTicket());
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    ALLOT_TRY(take(entries[i], std::move(results[i]), counted_before));
  }
  return {};
}

Status Aggregator::take(const InboxEntry& entry, std::optional<v1::EpisodeResult> decoded,
                        const std::set<uint64_t>& counted_before) {
  if (entry.bytes > kLargestResult) {
    return refuse(entry, RefusalKind::kOversized,
                  "it has " + std::to_string(entry.bytes) + " bytes");
  }
  if (!decoded) return refuse(entry, RefusalKind::kUndecodable, "it is no EpisodeResult");
  v1::EpisodeResult& result = *decoded;
  if (result.result_id() != entry.result_id || entry.result_id.empty()) {
    return refuse(entry, RefusalKind::kInvalid,
                  "it was put there by another way than a worker's push");
  }
  const Status own =
      checkSignature(result.worker(), signedFor(kSignedResult), entry.payload, entry.signature);
  if (!own) return refuse(entry, RefusalKind::kInvalid, own.error().message);
  if (result.policy_version() > state_.policy().version()) ALLOT_TRY(checkNewest());
  if (isBeyondWindow(result)) return refuseStale(entry, result);
  if (const std::string how = audits_.lies(result.worker()); !how.empty()) {
    return refuse(entry, RefusalKind::kInvalid, "its worker lies: " + how);
  }
  const Status checked =
      checkResult(control_.experiment, state_, result, policyOf(result.policy_version()));
  if (!checked) return refuse(entry, RefusalKind::kInvalid, checked.error().message);
  if (run_.synchronous) {
    const uint64_t version = state_.policy().version();
    if (result.ticket() / episodesPerUpdate() != version || result.policy_version() != version) {
      return refuse(entry, RefusalKind::kSuperseded, "its ticket belongs to another update");
    }
  } else if (result.ticket() >= std::min(next_ticket_, store::kLargestNumber)) {
    return refuse(entry, RefusalKind::kInvalid, "its ticket was never handed out");
  }
  const bool again = counted_before.contains(result.ticket());
  if (again || !held_tickets_.insert(result.ticket()).second) {
    return refuse(entry, RefusalKind::kSuperseded, "its ticket has a result already");
  }
  const bool is_new = !shown_results_.contains(entry.entry_id);
  const std::string too_long = is_new ? whyTooLong(result.worker(), result.seconds()) : "";
  if (!too_long.empty()) {
    held_tickets_.erase(result.ticket());
    return refuse(entry, RefusalKind::kInvalid, too_long);
  }
  const uint64_t place = run_.synchronous ? result.ticket() : arrivals_;
  ++arrivals_;
  if (is_new) {
    shown_results_.insert(entry.entry_id);
    claimed_time_.add(result.worker(), result.seconds());
    audits_.take(result);
  }
  held_.emplace(place, Held{entry, std::move(result)});
  held_.at(place).entry.payload.clear();
  progressed();
  return {};
}

// Returns kUnavailable and lets the next tick load the run if the store has another version than
// state_: an update that was given up may have taken effect.
Status Aggregator::checkNewest() {
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (!policy || policy->snapshot.version() == state_.policy().version()) return {};
  return loadAgain({ErrorCode::kUnavailable, "the run is at version " +
                                                 std::to_string(policy->snapshot.version()) +
                                                 " already: it is loaded again"});
}

Status Aggregator::refuse(const InboxEntry& entry, RefusalKind kind, const std::string& reason) {
  ALLOT_TRY(leadership_->reject(entry, kind, reason));
  shown_results_.erase(entry.entry_id);
  events_.refused(kind);
  // Superseded results are no sign of trouble: another result of their ticket counts, or the ticket
  // is of another update.
  if (kind != RefusalKind::kSuperseded) ++refused_in_a_row_;
  last_error_ = "refused result " + entry.result_id.substr(0, 200) + ": " + reason;
  last_error_unix_ms_ = options_.unix_now();
  spdlog::warn("{}", last_error_);
  return {};
}

Status Aggregator::refuseStale(const InboxEntry& entry, const v1::EpisodeResult& result) {
  return refuse(entry, RefusalKind::kStale,
                "it is of version " + std::to_string(result.policy_version()) +
                    ", the policy of version " + std::to_string(state_.policy().version()));
}

// Returns true if the policy of the result is no longer kept in policies_.
bool Aggregator::isBeyondWindow(const v1::EpisodeResult& result) const {
  return result.policy_version() + options_.policy_window <= state_.policy().version();
}

// Refuses held results that are too old for the update that is due.
Status Aggregator::dropStale() {
  for (auto it = held_.begin(); it != held_.end();) {
    const v1::EpisodeResult& result = it->second.result;
    if (!isBeyondWindow(result) &&
        !isStale(control_.experiment, state_.policy().version(), result)) {
      ++it;
      continue;
    }
    ALLOT_TRY(refuseStale(it->second.entry, result));
    held_tickets_.erase(result.ticket());
    it = held_.erase(it);
  }
  return {};
}

size_t Aggregator::ready() const {
  return static_cast<size_t>(std::count_if(
      held_.begin(), held_.end(), [&](const auto& held) { return mayCount(held.second); }));
}

bool Aggregator::batchReady() const {
  return learning() && held_.size() >= episodesPerUpdate() && ready() >= episodesPerUpdate();
}

Status Aggregator::update() {
  ALLOT_TRY(dropStale());
  if (!batchReady()) return {};
  std::vector<v1::EpisodeResult> results;
  std::vector<uint64_t> places;
  Commit commit;
  for (const auto& [place, held] : held_) {
    if (results.size() == mostOfUpdate()) break;
    if (!mayCount(held)) continue;
    places.push_back(place);
    results.push_back(held.result);
    commit.consumed.emplace_back(held.entry.entry_id, held.entry.result_id);
    commit.tickets.push_back(held.result.ticket());
  }
  const auto start = std::chrono::steady_clock::now();
  UpdateOutcome outcome = applyUpdate(control_.experiment, state_, results);
  outcome.record.set_committed_unix_ms(options_.unix_now());
  commit.expected_version = state_.policy().version();
  commit.policy = outcome.state.policy();
  commit.state = outcome.state;
  commit.record = outcome.record;
  commit.forget_policy = policyToForget(outcome.record.version());
  if (const Status committed = leadership_->commit(commit); !committed) {
    return loadAgain(committed.error());
  }
  events_.updated(outcome.record,
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  state_ = std::move(outcome.state);
  tickets_reached_ = ticketsReached(tickets_reached_, outcome.record);
  history_.add(std::move(outcome.record));
  policies_.push_back(state_.policy());
  if (policies_.size() > options_.policy_window) policies_.pop_front();
  for (const v1::EpisodeResult& result : results) {
    held_tickets_.erase(result.ticket());
    audits_.counts(result, state_.policy().version());
  }
  for (const uint64_t place : places) held_.erase(place);
  for (const auto& [entry_id, result_id] : commit.consumed) shown_results_.erase(entry_id);
  progressed();
  // A run that was loaded with a whole update in its inbox has counted tickets that its count of
  // tickets does not know of: it would be taken for broken.
  const uint64_t counted = state_.policy().version() * episodesPerUpdate();
  if (run_.synchronous && next_ticket_ < counted) {
    if (const Status reset = leadership_->resetTickets(counted); !reset) {
      return loadAgain(reset.error());
    }
    next_ticket_ = counted;
  }
  return planIfDue();
}

// Returns the version that leaves the window when `version` is committed; nothing if none does or
// if it is one to evaluate.
std::optional<uint64_t> Aggregator::policyToForget(uint64_t version) const {
  if (version < options_.policy_window) return std::nullopt;
  const uint64_t oldest = version - options_.policy_window;
  return evaluationDue(control_.experiment, oldest) ? std::nullopt : std::optional(oldest);
}

// Lets the next tick load the run, and returns kUnavailable, if `refused` is kUnavailable or
// kInternal: the write may have taken effect. Returns other errors unchanged.
Status Aggregator::loadAgain(const Error& refused) {
  const bool known =
      refused.code == ErrorCode::kUnavailable || refused.code == ErrorCode::kInternal;
  if (!known) return tl::unexpected(refused);
  loaded_ = false;
  return fail(ErrorCode::kUnavailable, refused.message);
}

// A synchronous run cannot go on without every ticket of the update; a ticket that died with its
// worker is handed out again. (Handing out a ticket that is merely slow does no harm: its second
// result is refused.)
Status Aggregator::reissueMissing() {
  if (!run_.synchronous || !learning() || open_units_ > 0) return {};
  const uint64_t now = options_.now();
  const uint64_t quiet_since = std::max(last_progress_, last_reissue_);
  if (now - quiet_since < options_.reissue_ms / 2) return {};
  const bool first_look = rolling_out_since_ < quiet_since;
  if (!first_look && now - rolling_out_since_ < options_.reissue_ms / 2) return {};
  if (!first_look && now - quiet_since < options_.reissue_ms) return {};
  // A worker that beats is at work on tickets of this update; a dead one does not beat.
  auto rolling_out = beatsOfRollouts();
  const bool moves = std::any_of(rolling_out.begin(), rolling_out.end(), [&](const auto& beat) {
    const auto before = rolling_out_.find(beat.first);
    return before == rolling_out_.end() || before->second != beat.second;
  });
  rolling_out_ = std::move(rolling_out);
  rolling_out_since_ = now;
  // Beats alone do not hold a run up for ever.
  if ((moves && !isStuck(quiet_since)) || now - quiet_since < options_.reissue_ms) return {};
  const uint64_t first = state_.policy().version() * episodesPerUpdate();
  for (uint64_t t = first; t < first + episodesPerUpdate(); ++t) {
    if (!held_.contains(t)) ALLOT_TRY(leadership_->reissueTicket(t));
  }
  last_reissue_ = now;
  return {};
}

std::map<std::string, uint64_t> Aggregator::beatsOfRollouts() {
  std::map<std::string, uint64_t> beats;
  const auto workers = store_.listWorkers();
  if (!workers) return beats;
  for (const v1::WorkerBeat& beat : *workers) {
    const bool here = beat.policy_version() == state_.policy().version() &&
                      beat.state() == wordOf(WorkerState::kRollout);
    if (here) beats.emplace(beat.worker(), beat.seen_unix_ms());
  }
  return beats;
}

bool Aggregator::goalReached() const {
  const v1::Spec& spec = control_.experiment.spec();
  return spec.stop().goal() > 0 &&
         evaluations_.learnedAccuracy(methodsName(spec.attention()),
                                      spec.policy().total_budget()) >= spec.stop().goal();
}

bool Aggregator::hoursSpent() const {
  const double most = control_.experiment.spec().stop().max_worker_hours();
  return most > 0 && state_.worker_seconds() + evaluation_seconds_ >= 3600 * most;
}

// Withdraws the open units. A run that goes on with more hours plans them again.
Status Aggregator::withdrawOpenUnits() {
  if (open_units_ == 0) return {};
  spdlog::info("spec.stop.maxWorkerHours is reached: {} open evaluation units are withdrawn",
               open_units_);
  v1::AggregatorState next = state_;
  next.set_has_evaluation(false);
  if (const Status written = leadership_->writeState(next); !written) {
    return loadAgain(written.error());
  }
  state_ = std::move(next);
  ALLOT_TRY(leadership_->withdrawUnits());
  open_units_ = 0;
  return {};
}

Result<bool> Aggregator::finishIfDone() {
  const uint64_t version = state_.policy().version();
  const bool evaluated = state_.has_evaluation() && state_.evaluated_version() == version;
  if (hoursSpent()) {
    ALLOT_TRY(withdrawOpenUnits());
  } else if (!evaluated || isMeasuring() || open_units_ > 0 || learning()) {
    return false;
  } else if (audits_.open()) {
    return false;
  }
  Control next = control_;
  next.desired = Desired::kFinished;
  // The change is refused if somebody changes the run at this moment; the next tick sees that.
  ALLOT_ASSIGN(const bool finished, store_.changeControl(next));
  if (!finished) return false;
  phase_ = Phase::kFinished;
  finished_unix_ms_ = options_.unix_now();
  return true;
}

}  // namespace allot
