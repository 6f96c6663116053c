#pragma once
// Audits: which answers a second worker gives again, and what follows if the scores differ
// (spec.audit).
//
// Each answer is drawn with the probability `share`; of each worker's first episode and first unit
// a few answers are audited in any case. The auditor is drawn among the live workers. Where scores
// differ, a third worker answers, too. Of three workers of one build and arithmetic, who differs
// from two equal answers lies. Other devices may differ: a worker lies if two others differ from it
// more often, or more in one direction, than core/evaluation/measured_again.h allows. A state
// machine without a store; one thread.
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

class Audits {
 public:
  // seed: of all draws; workers must not know it. repeats: workers of one build and arithmetic have
  // equal scores, as for all graders but those that run programs.
  Audits(uint64_t seed, bool repeats) : random_(seed), repeats_(repeats) {}

  // Goes on after a restart: with the marks, counts and disputes of the stored status.
  void restore(const v1::AuditStatus& stored);
  // Sets the share in force. 0 ends all audits, and disputes undecided.
  void setShare(double share);
  // Sets the live workers, with their last beats.
  void setWorkers(const std::vector<v1::WorkerBeat>& beats);

  // Takes a result that may come to count, and draws which of its answers are audited.
  void take(const v1::EpisodeResult& result);
  void take(const v1::EvaluationResult& result);  // other measures than accuracy are ignored
  // Notes a result that counts from now on. update: that consumed the episode.
  void counts(const v1::EpisodeResult& result, uint64_t update);
  void counts(const v1::EvaluationResult& result);

  // Returns what workers are asked now, the worker's name and number unique. Gives audits without
  // an answer to other workers. now: any clock, in milliseconds.
  std::vector<v1::AuditTasks> ask(uint64_t now);
  // Compares answers to what was asked; others are ignored. Returns true if a worker was found to
  // lie.
  bool answered(const std::vector<v1::AuditAnswers>& answers);

  // Returns true if results of the worker must wait: its first audit or a dispute goes on.
  bool holds(const std::string& worker) const;
  // Returns how the worker was found to lie; "" if it was not.
  std::string lies(const std::string& worker) const;
  bool open() const { return !open_.empty(); }
  // Returns a sentence about a dispute that no live worker can decide; "" if there is none.
  std::string whyWaiting() const;
  v1::AuditStatus status() const;

 private:
  struct Audit {
    v1::AuditTask task;
    std::string author, build, arithmetic;
    std::vector<double> recorded = {};
    bool first = false;              // of its author, whose results wait
    std::string auditor = {};        // who differs from the author; "": nobody yet
    std::vector<double> again = {};  // the auditor's scores
    bool exact = false;              // of the two: a dispute, which is never dropped
    uint64_t tries = 0;              // that had no answer
    bool asked = false;
  };
  struct Batch {
    v1::AuditTasks tasks;
    uint64_t since_ms = 0;
    std::vector<uint64_t> audits;  // numbers, in the order of the tasks
  };

  void draw(const Audit& whole, bool unit);
  void begin(Audit audit, uint32_t first, uint32_t count);
  bool compare(Audit* audit, const v1::AuditAnswers& from, const v1::AuditAnswer& answer);
  void decide(const Audit& audit, const std::string& third, const std::vector<double>& scores);
  void tally(const Audit& audit, const v1::AuditAnswer& answer, bool by_two);
  void mark(std::string worker, const std::string& how);
  void giveBack(const Batch& batch);
  void dropHopeless();
  bool isExact(const Audit& audit, const std::string& build, const std::string& arithmetic) const;
  // Returns the live workers that may answer: those of the author's build and arithmetic if there
  // are any, and for a dispute these alone. Of those who may decide a dispute, the ones that were
  // audited themselves are preferred.
  std::vector<std::string> auditors(const Audit& audit) const;
  v1::AuditedWorker& of(const std::string& worker);
  std::string summary() const;

  std::mt19937_64 random_;
  const bool repeats_;
  double share_ = 0;
  std::map<std::string, v1::WorkerBeat> live_;  // those that can work
  std::map<std::string, v1::AuditedWorker> workers_;
  std::map<uint64_t, Audit> open_;  // by number, in order of age
  std::map<std::string, Batch> asked_;
  std::set<std::string> silent_;  // workers that left an audit without an answer
  uint64_t next_ = 0;
  uint64_t batches_ = random_();  // number of the next batch; workers see it, and no later draw
  uint64_t places_ = 0;           // workers compared with other devices
  v1::AuditStatus counts_;
};

}  // namespace allot
