#include "worker/worker_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "core/policy_gradient.h"
#include "core/spec_change.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kBeatTtlMs = 45'000;
constexpr uint64_t kBeatEveryMs = 2'000;
constexpr uint64_t kBeatAtMostEveryMs = 250;
constexpr uint64_t kBeatWhileBusyMs = 10'000;  // a store that hangs then costs little
constexpr uint64_t kAskMovedMs = 5'000;
constexpr uint64_t kMostBad = 5;  // results in a row that no aggregator will take
constexpr auto kIdle = milliseconds(50);
constexpr auto kResting = milliseconds(1000);  // the run has ended
constexpr auto kFirstWait = milliseconds(100);
constexpr auto kLongestWait = milliseconds(5000);

}  // namespace

WorkerLoop::WorkerLoop(Store* store, EpisodeEngine* engine, RunSpec run, WorkerOptions options,
                       const std::atomic<bool>* draining)
    : store_(*store),
      engine_(*engine),
      run_(std::move(run)),
      options_(std::move(options)),
      draining_(*draining),
      events_(options_.events ? *options_.events : nobody_),
      jitter_(static_cast<std::minstd_rand::result_type>(options_.jitter_seed)),
      wait_(kFirstWait) {
  control_.experiment = run_.experiment;
  engine_.interruptWhen([this] { return interrupted(); });
}

WorkerLoop::~WorkerLoop() { engine_.interruptWhen(nullptr); }

Status WorkerLoop::run() {
  while (true) {
    ALLOT_ASSIGN(const auto pause, step());
    if (!pause) return {};
    if (pause->count() > 0) rest(*pause);
  }
}

Result<std::optional<milliseconds>> WorkerLoop::step() {
  const Result<Tick> ticked = tick();
  tellProgress();
  if (!ticked) {
    if (ticked.error().code == ErrorCode::kUnavailable) return away(ticked.error());
    if (ticked.error().code == ErrorCode::kFenced) {
      // What is in hand is no longer wanted, and there is another experiment to take up.
      spdlog::warn("{}", ticked.error().message);
      leave();
      return std::nullopt;
    }
    return tl::unexpected(ticked.error());
  }
  if (away_since_ms_) {
    const uint64_t gone = options_.now() - *away_since_ms_;
    spdlog::info("the store is back after {:.1f} s", static_cast<double>(gone) / 1000);
  }
  away_since_ms_.reset();
  wait_ = kFirstWait;
  if (*ticked == Tick::kEnded) {
    leave();
    return std::nullopt;
  }
  if (*ticked == Tick::kResting) return kResting;
  return *ticked == Tick::kIdle ? kIdle : milliseconds(0);
}

void WorkerLoop::tellProgress() { events_.progress({policy_version_, held_.size(), draining_}); }

bool WorkerLoop::graceIsOver() {
  if (!draining_) return false;
  const uint64_t now = options_.now();
  if (!draining_since_ms_) {
    draining_since_ms_ = now;
    spdlog::info("asked to end: takes no new work, {} s for what is in hand",
                 options_.grace_ms / 1000);
  }
  return now - *draining_since_ms_ >= options_.grace_ms;
}

bool WorkerLoop::interrupted() {
  tellProgress();
  // Else a worker with a long episode would be taken for idle, and then for dead.
  const bool told = state_ == beaten_state_;
  const uint64_t since = options_.now() - beaten_ms_.value_or(0);
  if (since >= (told ? kBeatWhileBusyMs : kBeatAtMostEveryMs)) (void)beat(state_);
  if (graceIsOver()) given_up_ = true;
  return given_up_;
}

bool WorkerLoop::movedOn() {
  if (!options_.stay || !options_.moved) return false;
  const uint64_t now = options_.now();
  if (asked_moved_ms_ && now - *asked_moved_ms_ < kAskMovedMs) return false;
  asked_moved_ms_ = now;
  return options_.moved();
}

// The store does not answer: results stay here, and so does this process, which would take long to
// load the model again.
Result<std::optional<milliseconds>> WorkerLoop::away(const Error& error) {
  last_error_ = error.message;
  if (!away_since_ms_) {
    spdlog::warn("{}; waiting with {} results in hand", error.message, held_.size());
    away_since_ms_ = options_.now();
  }
  if (draining_) {
    leave();
    return std::nullopt;
  }
  // Jitter, so that many workers do not come back in step.
  const milliseconds pause = wait_ + milliseconds(jitter_() % static_cast<unsigned>(wait_.count()));
  wait_ = std::min(2 * wait_, kLongestWait);
  return pause;
}

void WorkerLoop::leave() {
  if (!held_.empty()) spdlog::warn("{} results were not pushed and are dropped", held_.size());
  for (size_t i = 0; i < held_.size(); ++i) events_.episode(WorkOutcome::kFailed, nullptr);
  (void)store_.leave(options_.name);  // else its heartbeat runs out
}

Result<WorkerLoop::Tick> WorkerLoop::tick() {
  ALLOT_TRY(pushHeld());
  const bool full = !held_.empty();  // the inbox is
  if (draining_ && (!full || graceIsOver())) return Tick::kEnded;
  if (movedOn()) return Tick::kEnded;
  // Also while the inbox is full: only here is heard that the run is over, or that there is more
  // room than there was.
  ALLOT_TRY(readControl());
  const bool over = control_.desired == "finished" || control_.desired == "stopped";
  if (over && (!options_.stay || draining_)) return Tick::kEnded;
  if (over != resting_) spdlog::info(over ? "the run has ended: waits" : "the run goes on");
  resting_ = over;
  if (over) {
    ALLOT_TRY(beat("idle"));
    return Tick::kResting;
  }
  if (control_.desired != "paused" && !draining_) {
    // Units even while the inbox is full: perhaps it is emptied only once they are done.
    ALLOT_ASSIGN(const bool evaluated, evaluateUnits());
    if (evaluated) return Tick::kWorked;
    if (!full) {
      ALLOT_ASSIGN(const bool rolled_out, rollOut());
      if (rolled_out) return Tick::kWorked;
    }
  }
  ALLOT_TRY(beat("idle"));
  return Tick::kIdle;
}

Status WorkerLoop::readControl() {
  ALLOT_ASSIGN(auto control, store_.readControl());
  if (!control) return fail(ErrorCode::kUsage, "the run is not in the store any more");
  // Live settings aside, a run has the experiment that it began with, unless it was replaced.
  if (control->revision != control_.revision &&
      !checkLiveChanges(run_.experiment, control->experiment, run_.synchronous)) {
    return fail(ErrorCode::kFenced, "the run has another experiment now");
  }
  control_ = std::move(*control);
  return {};
}

Status WorkerLoop::pushHeld() {
  const uint64_t cap = inboxCapacity(options_.inbox_cap, control_.experiment);
  while (!held_.empty()) {
    ALLOT_ASSIGN(const PushOutcome outcome, store_.pushResult(held_.front(), cap));
    if (outcome == PushOutcome::kFull) return {};
    events_.episode(WorkOutcome::kPushed, &held_.front());
    held_.pop_front();
  }
  return {};
}

Status WorkerLoop::evaluateUnit(const v1::EvaluationUnit& unit) {
  ALLOT_TRY(beat("evaluation"));
  ALLOT_ASSIGN(v1::EvaluationResult result, engine_.evaluate(unit));
  result.set_worker(options_.name);
  result.set_build(options_.build);
  result.set_finished_unix_ms(options_.unix_now());
  ALLOT_TRY(store_.pushEvaluation(result));
  events_.unit(WorkOutcome::kPushed, &result);
  return {};
}

Result<bool> WorkerLoop::evaluateUnits() {
  ALLOT_ASSIGN(const auto units, store_.claimUnits(engine_.warmChunks(), claim_ms_));
  if (units.empty()) return false;
  const uint64_t start = options_.now();
  size_t done = 0;
  Status evaluated;
  while (done < units.size() && !draining_) {
    evaluated = evaluateUnit(units[done]);
    if (!evaluated) break;
    ++done;
  }
  if (done < units.size()) {
    // Others need not wait until the claim runs out; should this fail, they will.
    (void)store_.releaseUnits({units.begin() + static_cast<std::ptrdiff_t>(done), units.end()});
    for (size_t i = done; i < units.size(); ++i) {
      const bool failed = i == done && !evaluated && !given_up_;
      events_.unit(failed ? WorkOutcome::kFailed : WorkOutcome::kAborted, nullptr);
    }
    if (given_up_) return true;
    ALLOT_TRY(evaluated);
    return true;
  }
  // Long enough that a claim runs out only if its worker is gone.
  claim_ms_ = std::max<uint64_t>(claim_ms_, 4 * (options_.now() - start));
  return true;
}

Result<bool> WorkerLoop::rollOut() {
  const v1::Spec& spec = control_.experiment.spec();
  if (!spec.has_update()) return false;
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (!policy) return false;
  policy_version_ = policy->snapshot.version();
  if (policy_version_ >= spec.update().max_updates()) return false;
  uint64_t count = spec.rollout().episodes_per_pull();
  uint64_t limit = UINT64_MAX;
  if (run_.synchronous) {
    const uint64_t per_update = spec.update().episodes_per_update();
    limit = (policy_version_ + 1) * per_update;
    if (per_update % count != 0) count = 1;
  }
  ALLOT_ASSIGN(const auto tickets, store_.takeTickets(count, limit));
  if (tickets.empty()) return false;
  ALLOT_TRY(beat("rollout"));
  auto results = engine_.rollOut(policy->snapshot, policy->sha256, tickets);
  if (!results) {
    for (size_t i = 0; i < tickets.size(); ++i) {
      events_.episode(given_up_ ? WorkOutcome::kAborted : WorkOutcome::kFailed, nullptr);
    }
    if (!given_up_) return tl::unexpected(results.error());
    spdlog::warn("the grace period is over: {} episodes are given up", tickets.size());
    return true;
  }
  v1::AggregatorState state;
  *state.mutable_policy() = policy->snapshot;
  Status checked;
  for (auto& result : *results) {
    hold(std::move(result));
    checked = checkResult(control_.experiment, state, held_.back(), &policy->snapshot);
    bad_in_a_row_ = checked ? 0 : bad_in_a_row_ + 1;
  }
  ALLOT_TRY(pushHeld());  // the aggregator's word counts, and it keeps what it refuses
  if (bad_in_a_row_ < kMostBad) return true;
  return fail(ErrorCode::kData, "the last " + std::to_string(bad_in_a_row_) +
                                    " results of this worker cannot be right (" +
                                    checked.error().message +
                                    "): its machine or its build computes wrongly");
}

void WorkerLoop::hold(v1::EpisodeResult result) {
  // Minted before the first attempt to push: pushing twice is then harmless.
  result.set_result_id(options_.name + "-" + std::to_string(results_++));
  result.set_worker(options_.name);
  result.set_build(options_.build);
  result.set_finished_unix_ms(options_.unix_now());
  ++episodes_;
  held_.push_back(std::move(result));
}

// Best effort: a beat that is lost is no reason to drop the tickets or units in hand.
Status WorkerLoop::beat(const std::string& state) {
  const uint64_t now = options_.now();
  state_ = state;
  if (beaten_ms_) {
    const uint64_t since = now - *beaten_ms_;
    if (state == beaten_state_ && since < kBeatEveryMs) return {};
    // Idle moments between two episodes are not worth a message.
    if (since < kBeatAtMostEveryMs) return {};
  }
  v1::WorkerBeat beat;
  beat.set_worker(options_.name);
  beat.set_state(draining_ ? "draining" : state);
  beat.set_device(engine_.deviceName());
  beat.set_policy_version(policy_version_);
  beat.set_episodes(episodes_);
  beat.set_seen_unix_ms(options_.unix_now());
  beat.set_held_results(held_.size());
  beat.set_last_error(last_error_);
  beat.set_build(options_.build);
  if (const Status sent = store_.beat(beat, kBeatTtlMs);
      !sent && sent.error().code != ErrorCode::kUnavailable) {
    return sent;
  }
  beaten_ms_ = now;
  beaten_state_ = state;
  return {};
}

void WorkerLoop::rest(milliseconds time) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), milliseconds(100)));
    if (draining_) return;
  }
}

}  // namespace allot
