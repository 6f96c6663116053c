#pragma once
// Aggregator: the one learner of a run.
//
// Takes results from the store's inbox, updates the policy, publishes it, plans evaluations and
// says when the run is over. All that it needs to go on is in the store: its process may be killed
// at any moment and started again. One thread. A tick waits at most `wait_ms` for results; each of
// its requests to the store has the store's deadline.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "aggregator/learner/aggregator_events.h"
#include "aggregator/learner/audits.h"
#include "aggregator/learner/claimed_time.h"
#include "aggregator/snapshot.h"
#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/evaluation_table.h"
#include "core/evaluation/fidelity_table.h"
#include "core/evaluation/layer_loss_table.h"
#include "core/evaluation/question_tasks.h"
#include "core/learning/history_summary.h"
#include "core/learning/replay.h"
#include "core/result.h"
#include "core/run_state.h"
#include "store/store.h"

namespace allot {

struct AggregatorOptions {
  std::string holder;      // names this process in the lease
  std::string build = {};  // buildText(), for the status
  uint64_t lease_ms = 15'000;
  uint64_t wait_ms = 200;        // longest wait for results in one tick
  uint64_t reissue_ms = 10'000;  // synchronous runs: silence before missing tickets are reissued
  uint64_t status_ms = 1'000;    // usual time between two statuses
  std::string page = {};         // address of the page, for the status
  uint64_t policy_window = kPolicyWindow;   // policy versions kept; tests set another
  std::optional<uint64_t> audit_seed = {};  // of Audits; tests set one
  std::function<uint64_t()> now;            // monotonic milliseconds
  std::function<uint64_t()> unix_now;
  AggregatorEvents* events = nullptr;  // told what happens; may be null
  // Waits; called with wait_ms in ticks that read no results because nothing is to be learned.
  std::function<void(uint64_t ms)> rest = [](uint64_t) {};
};

class Aggregator {
 public:
  Aggregator(Store* store, RunSpec run, AggregatorOptions options);

  // Does one round: lease, settings, results, update, evaluation. Returns true while there is more
  // to do. Errors: kUnavailable (call again later), kFenced (this process leads no longer, or the
  // run was replaced: leave), others final.
  Result<bool> tick();

  // Returns the run as of the last tick. Workers, refusals, the size of the inbox and the
  // aggregator's status are read anew. Those that cannot be read are empty or 0.
  RunSnapshot snapshot();
  // Returns true for lease_ms after the last renewal of the lease.
  bool leads() const { return leadership_ && options_.now() - lease_renewed_ < options_.lease_ms; }
  // Sets the sentence by which the status explains that an edit of the experiment file was refused;
  // empty: none was.
  void setEditRefused(const std::string& sentence);
  // Returns true if the run has ended. Further ticks keep the lease and continue the run if a
  // person extends or resumes it.
  bool finished() const { return phase_ == Phase::kFinished || phase_ == Phase::kStopped; }

 private:
  struct Held {
    InboxEntry entry;
    v1::EpisodeResult result;
  };

  // Refusals of one evaluation unit since a result of it was last accepted.
  struct UnitRefusals {
    uint64_t count = 0;
    std::set<std::string> workers;
    std::string reason;
  };

  Result<bool> work();
  Status lead();
  Status takeLease();
  Status mendKeys(bool forget_model);
  Result<bool> start();
  Status load();
  Status tryLoad();
  Status loadAgain(const Error& refused);
  Result<uint64_t> lastRecorded(uint64_t version);
  Result<bool> catchUp();
  Result<uint64_t> catchUpOnce();
  Result<uint64_t> readOldPolicies();
  Result<uint64_t> readSample();
  Status readControl();
  Status collect();
  Status takeAll(const std::vector<InboxEntry>& entries);
  Status take(const InboxEntry& entry, std::optional<v1::EpisodeResult> decoded,
              const std::set<uint64_t>& counted_before);
  Status checkNewest();
  Status refuse(const InboxEntry& entry, RefusalKind kind, const std::string& reason);
  Status refuseStale(const InboxEntry& entry, const v1::EpisodeResult& result);
  bool isBeyondWindow(const v1::EpisodeResult& result) const;
  Status dropStale();
  Status audit();
  SignedFor signedFor(std::string_view kind) const { return {kind, store_.runId(), run_.sha256}; }
  // Returns why a result of the worker that took `seconds` cannot be; "" if it can.
  std::string whyTooLong(const std::string& worker, double seconds) const {
    return claimed_time_.whyTooLong(worker, seconds, options_.now(), options_.unix_now());
  }
  void lookAtWorkers();
  Status restoreAudits();
  void readEvaluationsAgain();
  Status refuseHeld();
  // Returns why results of the worker are refused that have not counted yet; "" if they are not.
  std::string whyRefused(const std::string& worker) const;
  RefusalKind refusalOf(const std::string& worker) const;
  bool mayCount(const Held& held) const { return !audits_.holds(held.result.worker()); }
  size_t ready() const;
  bool learning() const;
  bool batchReady() const;
  Status update();
  std::optional<uint64_t> policyToForget(uint64_t version) const;
  Status planIfDue();
  // Returns true while the layers are being measured.
  bool isMeasuring() const;
  bool awaitsMeasurement() const;
  Measuring measuring() const;
  Status finishMeasuring();
  Status readEvaluations();
  Status takeRecorded();
  Result<uint64_t> readSomeEvaluations();
  // What became of a recorded evaluation. A waiting one stays recorded.
  enum class Taken { kRight, kRefused, kWaits };
  Result<Taken> takeEvaluation(const Evaluation& evaluation);
  std::optional<std::string> whyOtherTasks(const v1::EvaluationResult& result);
  // Returns true if the evaluation, of a worker that lies, was refused.
  Result<bool> refuseIfLie(const Evaluation& evaluation);
  Status refuseEvaluation(const Evaluation& evaluation, const v1::EvaluationUnit* planned,
                          const std::string& reason, bool of_unit);
  Result<const v1::EvaluationUnit*> plannedUnit(const v1::EvaluationUnit& unit);
  Result<std::optional<v1::PolicySnapshot>> policyAt(uint64_t version);
  uint64_t noteRefusal(const v1::EvaluationResult& result, const std::string& reason);
  std::string heldBack() const;
  Status reissueMissing();
  // Returns the time of the last beat of each worker that rolls out the current policy, in Unix ms
  // by that worker's clock. Empty if workers cannot be read.
  std::map<std::string, uint64_t> beatsOfRollouts();
  Result<bool> finishIfDone();
  bool goalReached() const;
  bool hoursSpent() const;
  Status withdrawOpenUnits();
  uint64_t maxUpdates() const;
  uint64_t episodesPerUpdate() const;
  // Returns the most results that one update takes.
  uint64_t mostOfUpdate() const;
  const v1::PolicySnapshot* policyOf(uint64_t version) const;
  Status publishStatus();
  v1::AggregatorStatus ownStatus();
  void rememberTheEnd();
  void lookAtStore();
  uint64_t nextUpdateBytes();
  std::string whyWaiting();
  void progressed();
  bool isStuck(uint64_t since) const;
  std::string whyStuck();

  Store& store_;
  const RunSpec run_;
  const AggregatorOptions options_;
  AggregatorEvents nobody_;  // used if options_.events is null
  AggregatorEvents& events_;
  Control control_;
  Phase phase_ = Phase::kStarting;
  std::optional<Leadership> leadership_;  // from the first lease on
  uint64_t lease_renewed_ = 0;
  uint64_t last_evaluated_ = 0;  // when an evaluation was accepted, or units or claims were new
  uint64_t newest_checked_ = 0;  // lease_renewed_ at the last checkNewest
  bool loaded_ = false;
  std::optional<v1::ModelFacts> model_;
  v1::AggregatorState state_;
  HistorySample history_;
  std::vector<uint64_t> history_to_read_;  // versions; the first history_read_ are read
  size_t history_read_ = 0;
  std::deque<v1::PolicySnapshot> policies_;  // the newest ones, to check results against
  EvaluationTable evaluations_;
  FidelityTable fidelity_;
  std::optional<LayerLossTable> layer_losses_;         // from load() on
  QuestionTasks question_tasks_;                       // of accepted evaluations
  std::map<std::string, UnitRefusals> refused_units_;  // by unit id
  // Entries of recorded evaluations that audits_ has seen, and that wait or were not accepted yet.
  std::set<std::string> shown_evaluations_;
  std::string evaluations_read_;  // id of the last accepted entry
  std::map<uint64_t, std::map<std::string, v1::EvaluationUnit>> plans_;  // by version, then unit id
  double evaluation_seconds_ = 0;  // of workers, for accepted evaluations
  // For the estimate of the store's room: accepted evaluations, and the bytes of their answers.
  uint64_t accepted_units_ = 0;
  uint64_t answers_bytes_ = 0;
  uint64_t open_units_ = 0;
  bool evaluations_caught_up_ = false;  // what was accepted before the load has been read
  bool evaluations_settled_ = false;    // all planned units are accepted, and read
  // Results waiting for their update: by order of arrival, or by ticket in a synchronous run.
  std::map<uint64_t, Held> held_;
  std::set<uint64_t> held_tickets_;
  std::set<std::string> shown_results_;           // entries of held ones: audits_ has seen them
  std::map<std::string, std::string> put_aside_;  // of audits_, until evaluations are looked at
  uint64_t next_ticket_ = 0;                      // at least this many have been handed out
  uint64_t tickets_reached_ = 0;                  // the highest counted ticket that is known, + 1
  uint64_t arrivals_ = 0;
  uint64_t last_progress_ = 0;  // time of the last progressed()
  uint64_t last_reissue_ = 0;
  std::map<std::string, uint64_t> rolling_out_;  // what beatsOfRollouts() said,
  uint64_t rolling_out_since_ = 0;               // and when
  Audits audits_;
  ClaimedTime claimed_time_;
  uint64_t liars_ = 0;  // of audits_, whose evaluations are refused
  bool audits_restored_ = false;
  bool audits_asked_ = true;  // the store may have tasks; at first, of another process
  std::optional<uint64_t> workers_looked_;
  uint64_t audit_ms_ = 0,
           audited_ms_ = 0;        // the clock of audits_, and the time of the last audit()
  uint64_t refused_in_a_row_ = 0;  // since last_progress_; superseded results do not count
  std::optional<uint64_t> status_published_;
  std::string last_error_;
  uint64_t last_error_unix_ms_ = 0;
  std::string edit_refused_;
  uint64_t finished_unix_ms_ = 0;  // 0: not finished, or unknown
  bool end_looked_up_ = false;     // control_ said finished at the last rememberTheEnd()
  // The store's fill at the last look (lookAtStore).
  StoreFill store_fill_;
  std::optional<uint64_t> updates_until_full_;
  std::optional<uint64_t> store_looked_;
  bool may_ask_fill_ = true;     // false after any error except kUnavailable
  bool told_too_small_ = false;  // the warning is logged
};

}  // namespace allot
