#pragma once
// Ledger: what really happened, written down beside the store, and compared with what the store,
// the history and the aggregator say.
//
// FaultyStore reports every effect in the order in which the server had it, whether or not the
// caller heard of it. The first thing that must not be is told to `violated`, as a sentence. What
// is checked: tests/sim/README.md. One thread.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/evaluation/evaluation_plan.h"
#include "core/evaluation/evaluation_table.h"
#include "core/learning/replay.h"
#include "store/store.h"
#include "tests/sim/scenario.h"

namespace allot::sim {

class Ledger {
 public:
  // open: gives clients of the server that nothing happens to.
  Ledger(const Scenario* scenario, const std::function<std::unique_ptr<Store>()>& open,
         std::function<void(const std::string&)> violated);

  // --- what workers do ---
  void made(const std::string& worker, const v1::EpisodeResult& result);
  void handedOut(const std::vector<uint64_t>& tickets);
  void heard(const std::string& worker, const std::vector<uint64_t>& tickets);
  void pushed(const std::string& worker, const v1::EpisodeResult& result,
              const Result<PushOutcome>& outcome);
  // An answer to a claim as the server gave it; a claim as its worker heard it; claims renewed.
  void claimed(const Result<std::vector<v1::EvaluationUnit>>& units, uint64_t now_ms);
  void heardClaim(const std::string& worker, const std::vector<v1::EvaluationUnit>& units);
  void renewed(const std::vector<std::string>& unit_ids, uint64_t now_ms);
  // A stranger has deleted units or what was recorded of them, or an aggregator has mended that.
  void unitsLost(bool lost) { units_lost_ = lost; }
  // Units of audits, which have a part of the questions, do not count.
  void evaluated(const v1::EvaluationUnit& unit);
  void lies(const std::string& worker) { liars_.insert(worker); }
  void told(const v1::AggregatorStatus& status);
  // It is recorded, or the worker will not do it.
  void leftUnit(const std::string& worker, const v1::EvaluationUnit& unit, uint64_t now_ms);
  void workerKilled(const std::string& worker, uint64_t now_ms);
  // It says how many results it did not push, and how many episodes it gave up half-way.
  void workerLeft(const std::string& worker, size_t dropped_results, size_t aborted_episodes,
                  uint64_t now_ms);
  // --- what strangers do ---
  // named: by a push, or so that the name of a true result is that of this entry.
  void injected(bool named);

  // --- what aggregators do ---
  void led(const std::string& holder, const Result<Lease>& lease);
  void wroteUnder(uint64_t epoch, const char* what, const Status& status);
  void wroteState(uint64_t epoch, const Status& status);
  void rejected(const InboxEntry& entry, RefusalKind kind, const Status& status);
  void evaluationRejected(const Evaluation& evaluation, RefusalKind kind, const Status& status);
  void committed(const std::string& holder, uint64_t epoch, const Commit& commit,
                 const Status& status);
  void planned(const std::vector<v1::EvaluationUnit>& units, const Status& status);
  void changedControl(const Control& control, const Result<bool>& changed);
  // An aggregator says that the run is over at this version and shows these cells.
  void shown(uint64_t version, const std::vector<EvaluationCell>& cells);
  // Whether an aggregator of this name may be told that another one leads.
  bool displaced(const std::string& holder) const;

  // Once nothing moves any more.
  void checkEnd();

  uint64_t version() const { return version_; }
  size_t refused() const { return refusals_.size(); }
  // The payload of any result that was pushed so far; for strangers to forge. Nothing: none was.
  const std::string* anyPayload(uint64_t pick) const;
  // The same of those that an update consumed.
  const std::string* anyConsumedPayload(uint64_t pick) const;
  const v1::EvaluationUnit* anyPlannedUnit(uint64_t pick) const;

 private:
  struct Entry {
    std::string result_id;
    std::string payload;
    bool genuine = false;
    uint64_t ticket = 0;
    uint64_t policy_version = 0;
    std::string fate;  // "": waits; "consumed"; or the kind of its refusal
  };

  void violate(const std::string& sentence);
  std::optional<InboxEntry> newEntry();
  bool mayBeRefused(const std::string& entry_id, const Entry& entry) const;
  void leftUnits(const std::string& worker, uint64_t now_ms);
  void consume(const Commit& commit, int index);
  void checkVersions();
  void checkHistory();
  void checkInbox();
  void checkRefusals();
  void checkTickets();
  void checkEvaluations();
  std::map<std::string, std::pair<uint64_t, double>> trueCells(uint64_t version) const;

  const Scenario& scenario_;
  std::unique_ptr<Store> eye_;       // has read all of the inbox so far
  std::unique_ptr<Store> late_eye_;  // reads it once, at the end
  std::function<void(const std::string&)> violated_;
  Control control_;

  // Episodes.
  std::map<std::pair<std::string, uint64_t>, std::set<std::string>> made_;  // by worker and ticket
  std::map<std::string, std::string> accepted_;                             // by result id
  std::map<std::string, Entry> entries_;                                    // by entry id
  std::vector<std::string> genuine_entries_;
  std::set<std::string> taken_names_;                            // result ids, by strangers
  std::set<std::string> consumed_;                               // result ids
  std::multiset<std::string> refusals_;                          // kinds
  std::set<uint64_t> handed_out_, unheard_, arrived_, excused_;  // tickets
  std::map<std::string, std::set<uint64_t>> in_hand_;            // by worker
  bool drop_ever_ = false;
  uint64_t least_lag_ = UINT64_MAX;

  std::set<std::string> liars_;  // workers that lie

  // Updates.
  std::map<uint64_t, std::string> leaders_;      // by epoch
  std::map<std::string, uint64_t> first_epoch_;  // by holder
  uint64_t committed_epoch_ = 0;
  uint64_t most_updates_ = 0;  // that a person ever asked for
  uint64_t version_ = 0;
  Replay replay_;

  // Evaluations.
  std::map<std::string, v1::EvaluationUnit> planned_;  // by unit id
  // By a request that was given up and arrived after the end: a plan that was not needed any more.
  std::set<std::string> planned_late_;
  std::set<std::string> rejected_evaluations_;                  // entry ids
  std::map<std::string, std::set<std::string>> units_in_hand_;  // by worker
  bool units_lost_ = false;
  std::map<std::string, uint64_t> cared_for_;  // by unit id: when a claim on it last had a reason
  std::map<std::string, uint64_t> evaluated_;  // how often
};

}  // namespace allot::sim
