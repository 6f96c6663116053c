#include "worker/loop/worker_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "core/evaluation/evaluation_check.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/printable.h"
#include "core/spec/spec_change.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kBeatEveryMs = 2'000;
constexpr uint64_t kBeatAtMostEveryMs = 250;
// During work: often enough to renew a claim several times, while a store that hangs costs about 1
// % of the time.
constexpr uint64_t kBeatWhileBusyMs = 4'000;
constexpr uint64_t kPatienceMs = 300;
constexpr uint64_t kSilentMs = 20'000;  // without beats and pushes, after one without an answer
// A worker claims units for about kClaimedWorkMs. Others may claim them kClaimMs after the last
// beat: every beat names all claimed units.
constexpr uint64_t kClaimMs = 60'000;
constexpr uint64_t kClaimedWorkMs = 60'000;
constexpr uint64_t kMostClaimed = 64;
constexpr uint64_t kAskMovedMs = 10'000;
constexpr uint64_t kMostBad = 5;  // results in a row that every aggregator would refuse
// The longest wait without work. News ends it earlier, but the end of a dead worker's claim is no
// news. Less than half of a heartbeat's lifetime.
constexpr auto kIdle = milliseconds(20'000);
constexpr auto kFull = milliseconds(250);  // draining, with results while the inbox is full
constexpr auto kSlice = milliseconds(100);
// News wakes many workers: this spreads their requests.
constexpr unsigned kMostWakeMs = 100;
constexpr auto kFirstWait = milliseconds(100);
constexpr auto kLongestWait = milliseconds(5000);

}  // namespace

WorkerLoop::WorkerLoop(RunReader* run_store, WorkSource* work, EpisodeEngine* engine, RunSpec run,
                       WorkerOptions options, const std::atomic<bool>* draining)
    : run_store_(*run_store),
      work_(*work),
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
  reportProgress();
  if (!ticked) {
    if (ticked.error().code == ErrorCode::kUnavailable) return away(ticked.error());
    if (ticked.error().code == ErrorCode::kFenced) {
      // The held results are obsolete, and there is another experiment to work for.
      spdlog::warn("{}", ticked.error().message);
      leave();
      return std::nullopt;
    }
    return tl::unexpected(ticked.error());
  }
  if (*ticked == Tick::kDropped) return leaveResultsBehind();
  if (away_since_ms_) {
    const uint64_t gone = options_.now() - *away_since_ms_;
    spdlog::info("the store is back after {:.1f} s", static_cast<double>(gone) / 1000);
  }
  away_since_ms_.reset();
  outage_.end();
  wait_ = kFirstWait;
  if (*ticked == Tick::kEnded) {
    leave();
    return std::nullopt;
  }
  if (*ticked != Tick::kIdle) return milliseconds(0);
  // The last beat had another state: the current one is reported before the long wait.
  if (beaten_state_ != state_) return milliseconds(kBeatAtMostEveryMs);
  return draining_ ? kFull : kIdle;
}

void WorkerLoop::reportProgress() {
  events_.progress({policy_version_, held_.size() + held_evaluations_.size(), draining_});
}

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
  reportProgress();
  // Without this beat a worker with a long episode would count as idle, and then as dead.
  const bool told = state_ == beaten_state_;
  const uint64_t since = options_.now() - beaten_ms_.value_or(0);
  if (since >= (told ? kBeatWhileBusyMs : kBeatAtMostEveryMs)) (void)beat(state_, kPatienceMs);
  if (graceIsOver()) given_up_ = true;
  return given_up_;
}

bool WorkerLoop::movedOn() {
  if (!options_.stay || !options_.moved || moved_) return moved_;
  const uint64_t now = options_.now();
  if (asked_moved_ms_ && now - *asked_moved_ms_ < kAskMovedMs) return false;
  asked_moved_ms_ = now;
  moved_ = options_.moved();
  return moved_;
}

// Handles a store that does not answer. Results are kept, and so is the process, which would take
// long to load the model again.
Result<std::optional<milliseconds>> WorkerLoop::away(const Error& error) {
  last_error_ = error.message;
  const size_t held = held_.size() + held_evaluations_.size();
  if (outage_.isNew(error.message)) {
    spdlog::warn("{}; waiting with {} results in hand", error.message, held);
  }
  if (!away_since_ms_) away_since_ms_ = options_.now();
  // Jitter, so that many workers do not return at once.
  milliseconds pause = wait_ + milliseconds(jitter_() % static_cast<unsigned>(wait_.count()));
  wait_ = std::min(2 * wait_, kLongestWait);
  if (draining_) {
    if (held > 0 && graceIsOver()) return leaveResultsBehind();
    if (held == 0) {
      leave();
      return std::nullopt;
    }
    const uint64_t left = options_.grace_ms - (options_.now() - *draining_since_ms_);
    pause = std::min(pause, milliseconds(left));
  }
  return pause;
}

void WorkerLoop::leave() {
  const size_t held = held_.size() + held_evaluations_.size();
  if (held > 0) spdlog::warn("{} results were not pushed and are dropped", held);
  for (size_t i = 0; i < held_.size(); ++i) events_.episode(WorkOutcome::kFailed, nullptr);
  for (size_t i = 0; i < held_evaluations_.size(); ++i) {
    events_.unit(WorkOutcome::kFailed, nullptr);
  }
  (void)work_.leave(options_.name);  // else its heartbeat runs out
}

tl::unexpected<Error> WorkerLoop::leaveResultsBehind() {
  leave();
  return fail(ErrorCode::kUnavailable,
              std::to_string(held_.size() + held_evaluations_.size()) +
                  " results are dropped: the store did not take them within the grace period of " +
                  std::to_string(options_.grace_ms / 1000) + " s" +
                  (last_error_.empty() ? " (its inbox is full)" : " (" + last_error_ + ")") +
                  ": give --grace more time, or see what became of the store");
}

Result<WorkerLoop::Tick> WorkerLoop::tick() {
  ALLOT_TRY(pushHeld());
  const bool full = !held_.empty();  // the inbox is full
  if (draining_ && !full) return Tick::kEnded;
  if (movedOn()) return Tick::kEnded;
  // Read even while the inbox is full, to learn that the run is over or that the inbox has become
  // larger.
  ALLOT_TRY(readControl());
  const bool over = isOver(control_.desired);
  if (over && (!options_.stay || draining_)) return Tick::kEnded;
  if (graceIsOver()) return Tick::kDropped;
  if (over != resting_) spdlog::info(over ? "the run has ended: waits" : "the run goes on");
  resting_ = over;
  if (over) {
    ALLOT_TRY(beat(WorkerState::kIdle));
    return Tick::kIdle;
  }
  if (control_.desired != Desired::kPaused && !draining_) {
    ALLOT_ASSIGN(const bool audited, answerAudits());
    if (audited) return Tick::kWorked;
    // Units are done even while the inbox is full: it may not be emptied before they are done.
    ALLOT_ASSIGN(const bool evaluated, evaluateUnits());
    if (evaluated) return Tick::kWorked;
    if (!full) {
      ALLOT_ASSIGN(const bool rolled_out, rollOut());
      if (rolled_out) return Tick::kWorked;
    }
  }
  ALLOT_TRY(beat(WorkerState::kIdle));
  return Tick::kIdle;
}

Status WorkerLoop::readControl() {
  ALLOT_ASSIGN(auto control, run_store_.readControl());
  if (!control) return fail(ErrorCode::kUsage, "the run is not in the store any more");
  // A run keeps its experiment apart from live settings, unless it was replaced.
  if (control->revision != control_.revision &&
      !checkLiveChanges(run_.experiment, control->experiment, run_.synchronous)) {
    return fail(ErrorCode::kFenced, "the run has another experiment now");
  }
  control_ = std::move(*control);
  silent_ms_.reset();
  return {};
}

Status WorkerLoop::pushHeld() {
  ALLOT_TRY(pushEvaluations());
  const uint64_t cap = inboxCapacity(options_.inbox_cap, control_.experiment);
  while (!held_.empty()) {
    ALLOT_ASSIGN(const PushOutcome outcome, work_.pushResult(held_.front(), cap));
    if (outcome == PushOutcome::kFull) return {};
    events_.episode(WorkOutcome::kPushed, &held_.front());
    held_.pop_front();
  }
  return {};
}

// Pushes evaluations. The unit's id makes a repeated push harmless.
Status WorkerLoop::pushEvaluations() {
  while (!held_evaluations_.empty()) {
    ALLOT_TRY(work_.pushEvaluation(held_evaluations_.front()));
    events_.unit(WorkOutcome::kPushed, &held_evaluations_.front());
    held_evaluations_.pop_front();
  }
  return {};
}

// Answers again what the aggregator asks for. Returns true if it asked for something new. Answers
// are left once more as long as they are asked for: the first time may have been in vain.
Result<bool> WorkerLoop::answerAudits() {
  ALLOT_ASSIGN(const auto asked, work_.readAudits(options_.name));
  if (!asked) return false;
  if (!asked->lies().empty()) {
    return fail(ErrorCode::kData, "the aggregator refuses the results of this worker (" +
                                      printable(asked->lies(), 500) +
                                      "): see whether its machine, its device or its build "
                                      "computes wrongly");
  }
  const bool fresh = audited_.number() != asked->number();
  if (fresh) {
    ALLOT_TRY(beat(WorkerState::kEvaluation));
    auto answers = answersTo(*asked);
    if (!answers && given_up_) return true;
    ALLOT_TRY(answers);
    audited_ = std::move(*answers);
  }
  ALLOT_TRY(work_.answerAudits(audited_));
  return fresh;
}

Result<v1::AuditAnswers> WorkerLoop::answersTo(const v1::AuditTasks& tasks) {
  v1::AuditAnswers answers;
  answers.set_worker(options_.name);
  answers.set_number(tasks.number());
  answers.set_build(options_.build);
  answers.set_arithmetic(engine_.arithmetic());
  std::optional<PublishedPolicy> policy;  // any: a run's policies ask alike
  const auto add = [&](const auto& result) {
    *answers.add_answers()->mutable_scores() = result.scores();
  };
  for (const v1::AuditTask& task : tasks.tasks()) {
    if (task.has_unit()) {
      ALLOT_ASSIGN(const auto result, engine_.evaluate(task.unit()));
      add(result);
      continue;
    }
    if (!policy) {
      ALLOT_ASSIGN(policy, run_store_.readPolicy());
    }
    if (!policy) return fail(ErrorCode::kData, "an episode is to be audited before any policy");
    ALLOT_ASSIGN(
        const auto results,
        engine_.answerUnder({{task.ticket(),
                              {task.schedule().begin(), task.schedule().end()},
                              questionsOf(run_.experiment.spec(), policy->snapshot, task.ticket()),
                              task.first(),
                              task.count()}}));
    add(results.front());
  }
  return answers;
}

// Moves the claimed units that may be answered together with the first unit right after it. Returns
// how many units to evaluate next: at least one, and otherwise at most rowsAtOnce() questions.
size_t WorkerLoop::gatherUnits() {
  const v1::EvaluationUnit first = claimed_.front();
  const auto others = std::stable_partition(
      claimed_.begin() + 1, claimed_.end(),
      [&](const v1::EvaluationUnit& unit) { return answeredTogether(first, unit); });
  uint64_t at_once = engine_.rowsAtOnce() / std::max(1u, first.question_count());
  // A draining worker drops work beyond the grace period. Prompts are read once for all units.
  if (answering_ms_ > 0) at_once = std::min(at_once, options_.grace_ms / 2 / answering_ms_);
  const auto together = static_cast<uint64_t>(others - claimed_.begin());
  return static_cast<size_t>(std::clamp<uint64_t>(at_once, 1, together));
}

Status WorkerLoop::evaluateFirst(size_t count) {
  ALLOT_TRY(beat(WorkerState::kEvaluation));
  ALLOT_ASSIGN(auto results,
               engine_.evaluateTogether(
                   {claimed_.begin(), claimed_.begin() + static_cast<std::ptrdiff_t>(count)}));
  double seconds = 0;
  for (const v1::EvaluationResult& result : results) seconds += result.counts().decode_seconds();
  answering_ms_ = static_cast<uint64_t>(1000 * seconds) / count;
  for (v1::EvaluationResult& result : results) {
    result.set_worker(options_.name);
    result.set_build(options_.build);
    result.set_finished_unix_ms(options_.unix_now());
    const auto why = whyImpossible(result, boundsOf(run_.experiment, 0));
    note(why ? fail(ErrorCode::kData, "unit " + result.unit().unit_id() + " " + *why) : Status());
    held_evaluations_.push_back(std::move(result));
    claimed_.pop_front();
  }
  return {};
}

// Returns the number of claimed units that were evaluated. If the store is away the work goes on,
// and results are pushed when it is back.
Result<size_t> WorkerLoop::evaluateClaimed() {
  size_t done = 0;
  while (!claimed_.empty() && !draining_) {
    const size_t count = gatherUnits();
    const Status evaluated = evaluateFirst(count);
    if (!evaluated && given_up_) break;
    ALLOT_TRY(evaluated);
    done += count;
    if (storeWasSilent()) continue;
    const Status pushed = pushEvaluations();
    if (!pushed && pushed.error().code != ErrorCode::kUnavailable) {
      return tl::unexpected(pushed.error());
    }
    if (!pushed) silent_ms_ = options_.now();
    ALLOT_TRY(tooManyBad());
  }
  return done;
}

Result<bool> WorkerLoop::evaluateUnits() {
  const uint64_t count =
      unit_ms_ == 0 ? 1 : std::clamp<uint64_t>(kClaimedWorkMs / unit_ms_, 1, kMostClaimed);
  ALLOT_ASSIGN(const auto units, work_.claimUnits({.holder = options_.name,
                                                   .warm = engine_.warmChunks(),
                                                   .count = count,
                                                   .lease_ms = kClaimMs}));
  if (units.empty()) return false;
  claimed_.assign(units.begin(), units.end());
  const uint64_t start = options_.now();
  const Result<size_t> done = evaluateClaimed();
  if (done && *done > 0) unit_ms_ = std::max<uint64_t>(1, (options_.now() - start) / *done);
  if (!claimed_.empty()) {
    // Other workers may then claim them at once. If the release fails, the claims run out.
    (void)work_.releaseUnits(options_.name, {claimed_.begin(), claimed_.end()});
    for (size_t i = 0; i < claimed_.size(); ++i) {
      events_.unit(i == 0 && !done ? WorkOutcome::kFailed : WorkOutcome::kAborted, nullptr);
    }
    claimed_.clear();
  }
  ALLOT_TRY(done);
  return true;
}

Result<bool> WorkerLoop::rollOut() {
  const v1::Spec& spec = control_.experiment.spec();
  if (!spec.has_update()) return false;
  ALLOT_ASSIGN(const auto policy, run_store_.readPolicy());
  if (!policy) return false;
  policy_version_ = policy->snapshot.version();
  if (policy_version_ >= spec.update().max_updates()) return false;
  // By default as many episodes as a decode step takes at no extra cost, and no more than this
  // worker's share of an update.
  const uint64_t asked = spec.rollout().episodes_per_pull();
  uint64_t at_once = engine_.rowsAtOnce() / std::max(1u, spec.rollout().questions_per_episode());
  // A draining worker drops work beyond the grace period.
  if (episode_ms_ > 0) at_once = std::min(at_once, options_.grace_ms / 2 / episode_ms_);
  const uint64_t per_update = spec.update().episodes_per_update();
  TicketRequest request{.count = asked};
  if (asked == 1 && at_once > 1) {
    request.count = at_once;
    request.shared = per_update;
  }
  if (run_.synchronous) {
    request.from = policy_version_ * per_update;
    request.limit = request.from + per_update;
  }
  ALLOT_ASSIGN(const auto tickets, work_.takeTickets(request));
  if (tickets.empty()) return false;
  ALLOT_TRY(beat(WorkerState::kRollout));
  const uint64_t start = options_.now();
  auto results = engine_.rollOut(policy->snapshot, policy->sha256, tickets);
  if (results) episode_ms_ = (options_.now() - start) / tickets.size();
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
  for (auto& result : *results) {
    hold(std::move(result));
    note(checkResult(control_.experiment, state, held_.back(), &policy->snapshot));
  }
  ALLOT_TRY(pushHeld());  // the aggregator decides, and keeps the results that it refuses
  ALLOT_TRY(tooManyBad());
  return true;
}

// Counts results that every aggregator would refuse.
void WorkerLoop::note(const Status& checked) {
  bad_in_a_row_ = checked ? 0 : bad_in_a_row_ + 1;
  if (!checked) bad_ = checked.error().message;
}

Status WorkerLoop::tooManyBad() const {
  if (bad_in_a_row_ < kMostBad) return {};
  return fail(ErrorCode::kData, "the last " + std::to_string(bad_in_a_row_) +
                                    " results of this worker cannot be right (" + bad_ +
                                    "): its machine or its build computes wrongly");
}

void WorkerLoop::hold(v1::EpisodeResult result) {
  // The id is made before the first push, so that a repeated push is harmless.
  result.set_result_id(options_.name + "-" + std::to_string(results_++));
  result.set_worker(options_.name);
  result.set_build(options_.build);
  result.set_finished_unix_ms(options_.unix_now());
  ++episodes_;
  held_.push_back(std::move(result));
}

// Returns true if the store failed to answer during work less than kSilentMs ago. The work goes on
// without beats and pushes then.
bool WorkerLoop::storeWasSilent() const {
  return silent_ms_ && options_.now() - *silent_ms_ < kSilentMs;
}

// Sends a beat if one is due. A store that is away is no error. patience_ms: the longest wait for
// the answer; 0: the store's own.
Status WorkerLoop::beat(WorkerState state, uint64_t patience_ms) {
  const uint64_t now = options_.now();
  state_ = state;
  if (storeWasSilent()) return {};
  if (beaten_ms_) {
    const uint64_t since = now - *beaten_ms_;
    if (state == beaten_state_ && since < kBeatEveryMs) return {};
    // Idle moments between two episodes are not worth a message.
    if (since < kBeatAtMostEveryMs) return {};
  }
  v1::WorkerBeat beat;
  beat.set_worker(options_.name);
  beat.set_state(std::string(wordOf(draining_ ? WorkerState::kDraining : state)));
  beat.set_device(engine_.deviceName());
  beat.set_arithmetic(engine_.arithmetic());
  beat.set_policy_version(policy_version_);
  beat.set_episodes(episodes_);
  beat.set_seen_unix_ms(options_.unix_now());
  beat.set_held_results(held_.size() + held_evaluations_.size());
  beat.set_last_error(last_error_);
  beat.set_build(options_.build);
  Heartbeat heartbeat{.beat = std::move(beat),
                      .ttl_ms = kBeatTtlMs,
                      .claim_ms = kClaimMs,
                      .patience_ms = patience_ms};
  for (const auto& unit : claimed_) heartbeat.units.push_back(unit.unit_id());
  for (const auto& made : held_evaluations_) heartbeat.units.push_back(made.unit().unit_id());
  if (const Status sent = work_.beat(heartbeat); !sent) {
    if (sent.error().code != ErrorCode::kUnavailable) return sent;
    silent_ms_ = options_.now();
    return {};
  }
  beaten_ms_ = now;
  beaten_state_ = state;
  return {};
}

void WorkerLoop::rest(milliseconds time) {
  const bool draining = draining_;
  const auto stop = [&] {
    reportProgress();
    return draining_ != draining || movedOn();
  };
  const uint64_t end = options_.now() + static_cast<uint64_t>(time.count());
  while (options_.now() < end && !stop()) {
    const uint64_t left = end - options_.now();
    if (!away_since_ms_ && !draining) {
      const auto news = work_.awaitNews(left, stop);
      if (!news) return sleep(kSlice);  // the next step waits for the store
      if (*news) return sleep(milliseconds(jitter_() % kMostWakeMs));
      if (options_.now() >= end) return;
    }
    sleep(std::min(kSlice, milliseconds(left)));
  }
}

void WorkerLoop::sleep(milliseconds time) const {
  if (options_.sleep) return options_.sleep(static_cast<uint64_t>(time.count()));
  std::this_thread::sleep_for(time);
}

}  // namespace allot
