#pragma once
// WorkerLoop: pulls work from the store, has the engine do it, pushes results.
//
// Stateless: whatever is killed here costs at most the episodes and units in flight. The store
// being away makes it wait, never fail, and what is finished is kept until it is back. One thread;
// `draining` may be set by a signal handler. Time comes from the options alone, so that a
// simulation can run many of these in one thread.
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
#include "store/store.h"
#include "worker/loop/episode_engine.h"
#include "worker/loop/worker_events.h"

namespace allot {

struct WorkerOptions {
  std::string name;   // unique among the run's workers, ever: results are named after it
  std::string build;  // what the results say they were made with
  uint64_t inbox_cap = kInboxEntries;  // inboxCapacity's least
  uint64_t jitter_seed = 0;
  bool stay = false;           // at the run's end: rest, and work again when the run goes on
  uint64_t grace_ms = 15'000;  // draining: the work in hand may take so long, then it is given up
  // With stay: whether there is another run to work for. Asked between two rounds, every 5 s.
  std::function<bool()> moved = {};
  std::function<uint64_t()> now;  // monotonic milliseconds
  std::function<uint64_t()> unix_now;
  std::function<void(uint64_t ms)> sleep = {};  // empty: this thread sleeps
  WorkerEvents* events = nullptr;               // told what happens; may be null
};

class WorkerLoop {
 public:
  // The engine is asked to ask this loop whether to go on; one loop at a time has an engine.
  WorkerLoop(RunReader* run_store, WorkSource* work, EpisodeEngine* engine, RunSpec run,
             WorkerOptions options, const std::atomic<bool>* draining);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  // Works until the run ends, there is another run or experiment to work for or draining is set.
  // Draining, the
  // work in hand is finished if the grace period is long enough, else dropped whole: of an episode
  // all results or none are pushed. Errors are those that waiting cannot mend; kData also if five
  // results in a row are such as an aggregator refuses (checkResult, whyImpossible); kUnavailable
  // if the grace period ended before the store took what is held.
  Status run();

  // One round of the above: push what is held, then a few units or one episode. How long to rest
  // before the next one; nothing once it is over. The store being away is no error.
  Result<std::optional<std::chrono::milliseconds>> step();
  // Waits for so long, or until the store has news for a worker that has nothing to do. Ends soon
  // after draining is set.
  void rest(std::chrono::milliseconds time);

  // Results of episodes made and not yet pushed.
  size_t heldResults() const { return held_.size(); }

 private:
  enum class Tick { kWorked, kIdle, kEnded, kDropped };

  Result<Tick> tick();
  Result<std::optional<std::chrono::milliseconds>> away(const Error& error);
  Status readControl();
  Status pushHeld();
  Status pushEvaluations();
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
  // Asked by the engine in the middle of its work.
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
  WorkerEvents nobody_;  // listens where the options name no one
  WorkerEvents& events_;
  Control control_;  // as last read
  std::minstd_rand jitter_;
  std::deque<v1::EpisodeResult> held_;  // made, not yet pushed
  std::deque<v1::EvaluationResult> held_evaluations_;
  std::deque<v1::EvaluationUnit> claimed_;  // to be evaluated; the first ones are in hand
  uint64_t unit_ms_ = 0;                    // how long a unit took of late; 0: not known
  uint64_t answering_ms_ = 0;               // of its share of the last answers, without prompts
  uint64_t episode_ms_ = 0;                 // of the last pull, on average
  uint64_t results_ = 0;
  uint64_t episodes_ = 0;
  uint64_t bad_in_a_row_ = 0;
  std::string bad_;  // what is wrong with the last of them
  uint64_t policy_version_ = 0;
  std::string last_error_;
  WorkerState state_ = WorkerState::kIdle;
  std::optional<WorkerState> beaten_state_;  // as last told
  std::optional<uint64_t> beaten_ms_;
  std::optional<uint64_t> away_since_ms_;
  std::optional<uint64_t> silent_ms_;  // when the store last did not answer in the middle of work
  std::optional<uint64_t> draining_since_ms_;
  std::optional<uint64_t> asked_moved_ms_;
  bool moved_ = false;     // there is another run to work for
  bool given_up_ = false;  // the engine was told to stop
  bool resting_ = false;   // the run has ended, and this worker stays
  std::chrono::milliseconds wait_;
};

}  // namespace allot
