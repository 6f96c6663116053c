#include "worker/worker_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <thread>

#include "core/policy_gradient.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kBeatTtlMs = 45'000;
constexpr auto kBeatEvery = std::chrono::seconds(2);
constexpr auto kIdle = milliseconds(50);
constexpr auto kFirstWait = milliseconds(100);
constexpr auto kLongestWait = milliseconds(5000);

uint64_t unixMs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

}  // namespace

WorkerLoop::WorkerLoop(Store* store, Engine* engine, RunSpec run, WorkerOptions options,
                       const std::atomic<bool>* draining)
    : store_(*store),
      engine_(*engine),
      run_(std::move(run)),
      options_(std::move(options)),
      draining_(*draining) {}

Status WorkerLoop::run() {
  std::minstd_rand jitter(std::random_device{}());
  milliseconds wait = kFirstWait;
  bool away = false;
  while (!draining_ || !held_.empty()) {
    const Result<Tick> ticked = tick();
    if (ticked) {
      if (away) spdlog::info("the store is back");
      away = false;
      wait = kFirstWait;
      if (*ticked == Tick::kEnded) break;
      if (*ticked == Tick::kIdle) rest(kIdle);
      continue;
    }
    if (ticked.error().code != ErrorCode::kUnavailable) return tl::unexpected(ticked.error());
    if (!away) spdlog::warn("{}; waiting", ticked.error().message);
    away = true;
    if (draining_) break;
    // Jitter, so that many workers do not come back in step.
    rest(wait + milliseconds(jitter() % static_cast<unsigned>(wait.count())));
    wait = std::min(2 * wait, kLongestWait);
  }
  if (!held_.empty()) spdlog::warn("{} results were not pushed and are dropped", held_.size());
  (void)store_.leave(options_.name);  // else its heartbeat runs out
  return {};
}

Result<WorkerLoop::Tick> WorkerLoop::tick() {
  ALLOT_TRY(pushHeld());
  if (!held_.empty()) {  // the inbox is full
    ALLOT_TRY(beat("idle"));
    return Tick::kIdle;
  }
  if (draining_) return Tick::kEnded;
  ALLOT_ASSIGN(const std::string desired, store_.readDesired());
  if (desired == "finished" || desired == "stopped") return Tick::kEnded;
  if (desired == "paused") {
    ALLOT_TRY(beat("idle"));
    return Tick::kIdle;
  }
  ALLOT_ASSIGN(const bool evaluated, evaluateUnits());
  if (evaluated) return Tick::kWorked;
  ALLOT_ASSIGN(const bool rolled_out, rollOut());
  if (rolled_out) return Tick::kWorked;
  ALLOT_TRY(beat("idle"));
  return Tick::kIdle;
}

Status WorkerLoop::pushHeld() {
  while (!held_.empty()) {
    ALLOT_ASSIGN(const PushOutcome outcome, store_.pushResult(held_.front(), options_.inbox_cap));
    if (outcome == PushOutcome::kFull) return {};
    held_.pop_front();
  }
  return {};
}

Status WorkerLoop::evaluateUnit(const v1::EvaluationUnit& unit) {
  ALLOT_TRY(beat("evaluation"));
  ALLOT_ASSIGN(v1::EvaluationResult result, engine_.evaluate(unit));
  result.set_worker(options_.name);
  result.set_finished_unix_ms(unixMs());
  ALLOT_TRY(store_.pushEvaluation(result));
  return {};
}

Result<bool> WorkerLoop::evaluateUnits() {
  ALLOT_ASSIGN(const auto units, store_.claimUnits(engine_.warmChunks(), claim_ms_));
  if (units.empty()) return false;
  const auto start = Clock::now();
  for (size_t done = 0; done < units.size(); ++done) {
    const Status evaluated = draining_ ? Status() : evaluateUnit(units[done]);
    if (evaluated && !draining_) continue;
    // Others need not wait until the claim runs out; should this fail, they will.
    (void)store_.releaseUnits({units.begin() + static_cast<std::ptrdiff_t>(done), units.end()});
    ALLOT_TRY(evaluated);
    return true;
  }
  // Long enough that a claim runs out only if its worker is gone.
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
  claim_ms_ = std::max<uint64_t>(claim_ms_, 4 * static_cast<uint64_t>(took));
  return true;
}

Result<bool> WorkerLoop::rollOut() {
  const v1::Spec& spec = run_.experiment.spec();
  if (!spec.has_update()) return false;
  ALLOT_ASSIGN(const auto policy, store_.readPolicy());
  if (!policy) return false;
  if (policyDigest(policy->snapshot) != policy->sha256) {
    return fail(ErrorCode::kData, "the policy of version " +
                                      std::to_string(policy->snapshot.version()) +
                                      " does not have the digest it was published with");
  }
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
  ALLOT_ASSIGN(auto results, engine_.rollOut(policy->snapshot, policy->sha256, tickets));
  for (auto& result : results) hold(std::move(result));
  ALLOT_TRY(pushHeld());
  return true;
}

void WorkerLoop::hold(v1::EpisodeResult result) {
  // Minted before the first attempt to push: pushing twice is then harmless.
  result.set_result_id(options_.name + "-" + std::to_string(results_++));
  result.set_worker(options_.name);
  result.set_build(ALLOT_BUILD);
  result.set_finished_unix_ms(unixMs());
  ++episodes_;
  held_.push_back(std::move(result));
}

Status WorkerLoop::beat(const std::string& state) {
  const auto now = Clock::now();
  if (state == beaten_state_ && now - beaten_ < kBeatEvery) return {};
  // Idle moments between two episodes are not worth a message.
  if (now - beaten_ < milliseconds(250)) return {};
  v1::WorkerBeat beat;
  beat.set_worker(options_.name);
  beat.set_state(draining_ ? "draining" : state);
  beat.set_device("cpu");
  beat.set_policy_version(policy_version_);
  beat.set_episodes(episodes_);
  beat.set_seen_unix_ms(unixMs());
  ALLOT_TRY(store_.beat(beat, kBeatTtlMs));
  beaten_ = now;
  beaten_state_ = state;
  return {};
}

void WorkerLoop::rest(milliseconds time) const {
  const auto end = Clock::now() + time;
  while (Clock::now() < end && !draining_) {
    std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), milliseconds(100)));
  }
}

}  // namespace allot
