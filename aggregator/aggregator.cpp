#include "aggregator/aggregator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "core/policy_gradient.h"
#include "core/spec.h"

namespace allot {
namespace {

// A record without the results it consumed: what pages and reports need.
v1::IterationRecord withoutResults(v1::IterationRecord record) {
  record.clear_results();
  record.clear_weights();
  return record;
}

}  // namespace

Aggregator::Aggregator(Store* store, RunSpec run, AggregatorOptions options)
    : store_(*store),
      run_(std::move(run)),
      options_(std::move(options)),
      evaluations_(run_.experiment.spec().task().held_out_questions()) {}

uint64_t Aggregator::maxUpdates() const {
  const v1::Spec& spec = run_.experiment.spec();
  return spec.has_update() ? spec.update().max_updates() : 0;
}

Result<bool> Aggregator::tick() {
  ALLOT_TRY(lead());
  if (!loaded_) {
    ALLOT_ASSIGN(const bool started, start());
    if (!started) return true;  // no worker has told the model's facts yet
  }
  ALLOT_ASSIGN(const std::string desired, store_.readDesired());
  if (desired == "stopped" || desired == "finished") {
    ALLOT_TRY(readEvaluations());
    phase_ = desired;
    return false;
  }
  ALLOT_TRY(planIfDue());
  ALLOT_TRY(collect());
  if (batchReady()) ALLOT_TRY(update());
  ALLOT_TRY(readEvaluations());
  ALLOT_TRY(reissueMissing());
  ALLOT_ASSIGN(const bool done, finishIfDone());
  if (done) return false;
  phase_ = desired == "paused" ? "paused" : open_units_ > 0 ? "evaluating" : "running";
  return true;
}

Status Aggregator::lead() {
  const uint64_t now = options_.now();
  if (epoch_ != 0 && now - lease_renewed_ < options_.lease_ms / 3) return {};
  ALLOT_ASSIGN(const Lease lease, store_.acquireLease(options_.holder, options_.lease_ms));
  if (!lease.held) {
    if (epoch_ != 0) {
      return fail(ErrorCode::kFenced, "aggregator " + lease.holder + " leads this run now");
    }
    return fail(ErrorCode::kUnavailable,
                "aggregator " + lease.holder + " still holds the lease of this run");
  }
  if (epoch_ != 0 && lease.epoch != epoch_) {
    return fail(ErrorCode::kFenced, "the lease of this run was lost in the meantime");
  }
  epoch_ = lease.epoch;
  lease_renewed_ = now;
  return {};
}

// True once the policy is there.
Result<bool> Aggregator::start() {
  ALLOT_ASSIGN(model_, store_.readModel());
  if (!model_) return false;
  ALLOT_TRY(checkAgainstLayers(run_.experiment, model_->layers()));
  const v1::AggregatorState initial = initialState(run_.experiment, model_->layers());
  ALLOT_TRY(store_.publishInitial(epoch_, initial.policy(), initial));
  ALLOT_TRY(load());
  return true;
}

Status Aggregator::load() {
  ALLOT_ASSIGN(const auto state, store_.readState());
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (!state || !policy) {
    return fail(ErrorCode::kData, "the store has a run without policy or state: restore it");
  }
  history_.clear();
  while (true) {
    const uint64_t after = history_.empty() ? 0 : history_.back().version();
    ALLOT_ASSIGN(auto records, store_.readHistory(after, 256));
    if (records.empty()) break;
    for (auto& record : records) history_.push_back(withoutResults(std::move(record)));
  }
  const uint64_t last = history_.empty() ? 0 : history_.back().version();
  if (policy->snapshot.version() != state->policy().version() ||
      last != state->policy().version()) {
    return fail(ErrorCode::kData, "the store disagrees with itself: policy version " +
                                      std::to_string(policy->snapshot.version()) + ", state " +
                                      std::to_string(state->policy().version()) + ", history " +
                                      std::to_string(last));
  }
  state_ = *state;
  ALLOT_TRY(store_.reopenInbox());
  if (run_.synchronous) {
    ALLOT_TRY(store_.resetTickets(state_.policy().version() *
                                  run_.experiment.spec().update().episodes_per_update()));
  }
  held_.clear();
  held_ids_.clear();
  last_progress_ = options_.now();
  loaded_ = true;
  if (last > 0) spdlog::info("continues after update {}", last);
  return {};
}

Status Aggregator::collect() {
  const v1::Spec& spec = run_.experiment.spec();
  const bool learning = spec.has_update() && state_.policy().version() < maxUpdates();
  const size_t wanted = learning ? spec.update().episodes_per_update() : 16;
  if (batchReady()) return {};
  ALLOT_ASSIGN(const auto entries, store_.readInbox(wanted, options_.wait_ms));
  for (const InboxEntry& entry : entries) {
    if (const Status taken = take(entry); !taken) {
      loaded_ = false;  // the rest of these entries is read again
      return taken;
    }
  }
  return {};
}

Status Aggregator::take(const InboxEntry& entry) {
  v1::EpisodeResult result;
  if (!result.ParseFromString(entry.payload)) return reject(entry, "it is no EpisodeResult");
  if (result.result_id() != entry.result_id) return reject(entry, "two names for one result");
  const uint64_t version = state_.policy().version();
  if (version >= maxUpdates()) return reject(entry, "the last update is done");
  if (const Status checked = checkResult(run_.experiment, state_, result); !checked) {
    return reject(entry, checked.error().message);
  }
  if (held_ids_.contains(entry.result_id)) return {};
  uint64_t place = arrivals_;
  if (run_.synchronous) {
    place = result.ticket();
    const uint64_t per_update = run_.experiment.spec().update().episodes_per_update();
    if (place / per_update != version || result.policy_version() != version) {
      return reject(entry, "its ticket belongs to another update");
    }
    if (held_.contains(place)) return reject(entry, "its ticket has a result already");
  }
  ++arrivals_;
  held_ids_.insert(entry.result_id);
  held_.emplace(place, Held{entry, std::move(result)});
  last_progress_ = options_.now();
  return {};
}

Status Aggregator::reject(const InboxEntry& entry, const std::string& reason) {
  ++rejected_;
  if (state_.policy().version() < maxUpdates()) {
    spdlog::warn("refused result {}: {}", entry.result_id, reason);
  }
  return store_.reject(epoch_, entry, reason);
}

bool Aggregator::batchReady() const {
  const v1::Spec& spec = run_.experiment.spec();
  return spec.has_update() && state_.policy().version() < maxUpdates() && !goalReached() &&
         held_.size() >= spec.update().episodes_per_update();
}

Status Aggregator::update() {
  const size_t wanted = run_.experiment.spec().update().episodes_per_update();
  std::vector<v1::EpisodeResult> results;
  Commit commit;
  auto end = held_.begin();
  for (; results.size() < wanted; ++end) {
    results.push_back(end->second.result);
    commit.consumed.emplace_back(end->second.entry.entry_id, end->second.entry.result_id);
  }
  UpdateOutcome outcome = applyUpdate(run_.experiment, state_, results);
  outcome.record.set_committed_unix_ms(options_.unix_now());
  commit.epoch = epoch_;
  commit.expected_version = state_.policy().version();
  commit.policy = outcome.state.policy();
  commit.state = outcome.state;
  commit.record = outcome.record;
  if (const Status committed = store_.commit(commit); !committed) {
    // The reply may be lost and the update made, or refused: the store knows, so load from it.
    if (committed.error().code != ErrorCode::kFenced) loaded_ = false;
    return committed;
  }
  state_ = std::move(outcome.state);
  history_.push_back(withoutResults(std::move(outcome.record)));
  for (auto it = held_.begin(); it != end; ++it) held_ids_.erase(it->second.entry.result_id);
  held_.erase(held_.begin(), end);
  last_progress_ = options_.now();
  return planIfDue();
}

Status Aggregator::planIfDue() {
  const uint64_t version = state_.policy().version();
  if (state_.has_evaluation() && state_.evaluated_version() == version) return {};
  if (!evaluationDue(run_.experiment, version) && !goalReached()) return {};
  // Units first: planning them twice does nothing, forgetting them would lose them.
  ALLOT_TRY(store_.planUnits(epoch_, planEvaluation(run_.experiment, state_.policy())));
  v1::AggregatorState next = state_;
  next.set_evaluated_version(version);
  next.set_has_evaluation(true);
  ALLOT_TRY(store_.writeState(epoch_, next));
  state_ = std::move(next);
  return {};
}

Status Aggregator::readEvaluations() {
  while (true) {
    ALLOT_ASSIGN(const auto evaluations, store_.readEvaluations(evaluations_read_, 256));
    if (evaluations.empty()) break;
    for (const Evaluation& evaluation : evaluations) {
      if (!evaluations_.add(evaluation.result)) {
        spdlog::warn("left out evaluation {} of {}: its scores cannot be",
                     evaluation.result.unit().unit_id(), evaluation.result.worker());
      }
      evaluations_read_ = evaluation.entry_id;
    }
    last_progress_ = options_.now();
  }
  ALLOT_ASSIGN(open_units_, store_.openUnits());
  return {};
}

// A synchronous run cannot go on without every ticket of the update; one that died with its worker
// is handed out again. (Handing out one that is merely slow does no harm: the second result is
// refused.)
Status Aggregator::reissueMissing() {
  const v1::Spec& spec = run_.experiment.spec();
  if (!run_.synchronous || !spec.has_update() || open_units_ > 0) return {};
  const uint64_t version = state_.policy().version();
  const uint64_t now = options_.now();
  if (version >= maxUpdates() || now - last_progress_ < options_.reissue_ms) return {};
  const uint64_t per_update = spec.update().episodes_per_update();
  for (uint64_t t = version * per_update; t < (version + 1) * per_update; ++t) {
    if (!held_.contains(t)) ALLOT_TRY(store_.reissueTicket(t));
  }
  last_progress_ = now;
  return {};
}

bool Aggregator::goalReached() const {
  const v1::Spec& spec = run_.experiment.spec();
  if (spec.stop().max_gpu_hours() > 0 &&
      state_.worker_seconds() >= 3600 * spec.stop().max_gpu_hours()) {
    return true;
  }
  return spec.stop().goal() > 0 &&
         evaluations_.learnedAccuracy(spec.policy().total_budget()) >= spec.stop().goal();
}

Result<bool> Aggregator::finishIfDone() {
  const uint64_t version = state_.policy().version();
  const bool evaluated = state_.has_evaluation() && state_.evaluated_version() == version;
  if (!evaluated || open_units_ > 0) return false;
  if (version < maxUpdates() && !goalReached()) return false;
  ALLOT_TRY(store_.setDesired("finished"));
  phase_ = "finished";
  return true;
}

RunSnapshot Aggregator::snapshot() {
  RunSnapshot snapshot{run_, model_, phase_, state_, history_, evaluations_.cells(), {}, rejected_};
  if (auto workers = store_.listWorkers()) snapshot.workers = std::move(*workers);
  return snapshot;
}

}  // namespace allot
