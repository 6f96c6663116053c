#pragma once
// WorkerLoop: pulls work from the store, lets the engine do it, and pushes the results.
//
// A kill costs at most the episodes and units in hand and the results that were not yet pushed. If
// the store is away, the loop waits and keeps these results. One thread; a signal handler may set
// `draining`. Time comes only from the options, so that a simulation can run many loops in one
// thread.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "core/result.h"
#include "core/worker_beats.h"
#include "store/outage.h"
#include "store/store.h"
#include "worker/loop/episode_engine.h"
#include "worker/loop/worker_events.h"

namespace allot {

struct WorkerOptions {
  // Of the identity that the WorkSource signs as. Never used before in this run: results are named
  // after it.
  std::string name;
  std::string build;                   // of this program, for the results
  uint64_t inbox_cap = kInboxEntries;  // lower bound of inboxCapacity
  uint64_t jitter_seed = 0;
  bool stay = false;           // at the run's end: rest, and work again when the run goes on
  uint64_t grace_ms = 15'000;  // time for the work in hand once draining; then it is given up
  // With stay: returns true if there is another run to work for. Called between rounds and during
  // rests, at most every 10 s.
  std::function<bool()> moved = {};
  std::function<uint64_t()> now;  // monotonic milliseconds
  std::function<uint64_t()> unix_now;
  std::function<void(uint64_t ms)> sleep = {};  // empty: std::this_thread sleeps
  WorkerEvents* events = nullptr;               // may be null
};

class WorkerLoop {
 public:
  // Sets the engine's interrupt callback: an engine belongs to one loop at a time.
  WorkerLoop(RunReader* run_store, WorkSource* work, EpisodeEngine* engine, RunSpec run,
             WorkerOptions options, const std::atomic<bool>* draining);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  // Works until the run ends (without `stay`), there is another run or experiment to work for, or
  // draining is set. Once draining, the work in hand is finished if the grace period is long
  // enough, else dropped. Errors are those that do not pass by waiting, and:
  //  - kData if five results in a row are ones that an aggregator refuses (checkResult,
  //    whyImpossible);
  //  - kData if the aggregator has found that this worker's scores are wrong;
  //  - kUnavailable if the grace period ended before the store accepted the held results.
  Status run();

  // Runs one round: pushes held results, then does the units of one claim or the episodes of one
  // pull. Returns how long to rest before the next round; nothing once the work is over. A store
  // that is away is no error until the grace period is over.
  Result<std::optional<std::chrono::milliseconds>> step();
  // Waits for `time`, or until the store has news for an idle worker. Ends sooner if the store
  // fails, and soon after draining is set or another run begins.
  void rest(std::chrono::milliseconds time);

  // Returns the number of episode results that were made and not yet pushed.
  size_t heldResults() const { return held_.size(); }

 private:
  enum class Tick { kWorked, kIdle, kEnded, kDropped };

  Result<Tick> tick();
  Result<std::optional<std::chrono::milliseconds>> away(const Error& error);
  Status readControl();
  Status pushHeld();
  Status pushEvaluations();
  Result<bool> answerAudits();
  Result<v1::AuditAnswers> answersTo(const v1::AuditTasks& tasks);
  Result<bool> evaluateUnits();
  Result<size_t> evaluateClaimed();
  size_t gatherUnits();
  Status evaluateFirst(size_t count);
  Result<bool> rollOut();
  Status beat(WorkerState state, uint64_t patience_ms = 0);
  bool storeWasSilent() const;
  void hold(v1::EpisodeResult result);
  void note(const Status& checked);
  Status tooManyBad() const;
  void leave();
  tl::unexpected<Error> leaveResultsBehind();
  bool graceIsOver();
  // Called by the engine in the middle of its work.
  bool interrupted();
  bool movedOn();
  void reportProgress();
  void sleep(std::chrono::milliseconds time) const;

  RunReader& run_store_;
  WorkSource& work_;
  EpisodeEngine& engine_;
  const RunSpec run_;
  const WorkerOptions options_;
  const std::atomic<bool>& draining_;
  WorkerEvents nobody_;  // used if the options name no listener
  WorkerEvents& events_;
  Control control_;  // as last read
  std::minstd_rand jitter_;
  std::deque<v1::EpisodeResult> held_;  // made, not yet pushed
  std::deque<v1::EvaluationResult> held_evaluations_;
  std::deque<v1::EvaluationUnit> claimed_;  // to be evaluated; the first ones are in hand
  v1::AuditAnswers audited_;                // the last ones
  uint64_t unit_ms_ = 0;                    // mean of the last claim; 0: not known
  uint64_t answering_ms_ = 0;               // a unit's share of the last answers, without prompts
  uint64_t episode_ms_ = 0;                 // mean of the last pull
  uint64_t results_ = 0;
  uint64_t episodes_ = 0;
  uint64_t bad_in_a_row_ = 0;
  std::string bad_;  // the fault of the last bad result
  uint64_t policy_version_ = 0;
  std::string last_error_;
  WorkerState state_ = WorkerState::kIdle;
  std::optional<WorkerState> beaten_state_;  // of the last beat
  std::optional<uint64_t> beaten_ms_;
  std::optional<uint64_t> away_since_ms_;
  Outage outage_;
  std::optional<uint64_t> silent_ms_;  // when the store last failed to answer during work
  std::optional<uint64_t> draining_since_ms_;
  std::optional<uint64_t> asked_moved_ms_;
  bool moved_ = false;     // there is another run to work for
  bool given_up_ = false;  // the engine was told to stop
  bool resting_ = false;   // the run has ended, and this worker stays
  std::chrono::milliseconds wait_;
};

}  // namespace allot
