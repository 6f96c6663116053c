#pragma once
// Audits: which answers a second worker gives again, and what follows if the scores differ
// (spec.audit).
//
// Each answer is drawn with the probability `share`; of each worker's first episode and first unit
// a few answers are audited in any case. The auditor is drawn among all live workers. Where two of
// one build and arithmetic differ in a score, a task or an other score, further such workers
// answer, too: who differs from more than half of all those lies. Scores of other devices may
// differ: a worker lies if two others differ from it more often, or more in one direction, than
// core/evaluation/measured_again.h allows. A state machine without a store; one thread.
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

// Random numbers: of a seed, or of the system, so that nobody can compute the next one from others.
class AuditDraws {
 public:
  using result_type = uint64_t;
  explicit AuditDraws(std::optional<uint64_t> seed) {
    if (seed) seeded_.emplace(*seed);
  }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }
  uint64_t operator()();

 private:
  std::optional<std::mt19937_64> seeded_;
};

class Audits {
 public:
  // seed: of all draws, in tests; nothing: the system's random numbers. repeats: workers of one
  // build and arithmetic have equal scores, as for all graders but those that run programs.
  Audits(std::optional<uint64_t> seed, bool repeats) : random_(seed), repeats_(repeats) {}

  // Goes on after a restart: with the marks, counts and disputes of the stored status.
  void restore(const v1::AuditStatus& stored);
  // Sets the share in force. 0 ends all audits, and disputes undecided.
  void setShare(double share);
  // Notes the beats of workers, which they have signed. A worker is live for a while after a beat
  // or a result of it, since others can delete its beats. now: any clock, in milliseconds.
  void setWorkers(const std::vector<v1::WorkerBeat>& beats, uint64_t now);

  // Takes a result that may come to count, and draws which of its answers are audited.
  void take(const v1::EpisodeResult& result);
  void take(const v1::EvaluationResult& result);  // other measures than accuracy are ignored
  // Audits one answer of an evaluation of measure accuracy, by its place, as a first audit: results
  // of its worker wait. Does nothing while another audit of the same answer goes on.
  void doubt(const v1::EvaluationResult& result, uint32_t place);
  // Notes a result that counts from now on. update: that consumed the episode.
  void counts(const v1::EpisodeResult& result, uint64_t update);
  void counts(const v1::EvaluationResult& result);

  // Returns what workers are asked now, the worker's name and number unique. Gives audits without
  // an answer to other workers. now: a clock, in milliseconds, that may
  // stand still while workers cannot answer.
  std::vector<v1::AuditTasks> ask(uint64_t now);
  // Compares answers to what was asked; others are ignored. Returns true if a worker was found to
  // lie.
  bool answered(const std::vector<v1::AuditAnswers>& answers);

  // Returns true if results of the worker must wait: its first audit or a dispute goes on. A first
  // audit ends when somebody has answered, or when there is no other worker.
  bool holds(const std::string& worker) const;
  // Returns how the worker was found to lie; "" if it was not.
  std::string lies(const std::string& worker) const;
  uint64_t liars() const { return counts_.liars(); }  // so far
  bool open() const { return !open_.empty(); }
  // Returns the workers whose waiting results are to be refused, with the reason, once: nobody
  // decided their dispute in time, and others can do their work.
  std::map<std::string, std::string> takePutAside() { return std::exchange(put_aside_, {}); }
  // Returns a sentence about a dispute that no live worker can decide, or a first audit that nobody
  // answers; "" if there is none.
  std::string whyWaiting() const;
  v1::AuditStatus status() const;

 private:
  static constexpr uint64_t kMostTries = 3;    // workers that are asked for one audit
  static constexpr uint64_t kLiveMs = 15'000;  // after the last sign of life; beats end 45 s later
  static constexpr uint64_t kVoiceMs =
      120'000;  // for which a worker counts where a majority decides
  static constexpr uint64_t kAnswerMs = 600'000;  // the longest time for an answer

  using Reply = std::vector<v1::QuestionScore>;
  struct Live {
    std::string build, arithmetic;
    uint64_t seen_ms = 0;  // the last time
  };
  struct Audit {
    v1::AuditTask task;
    std::string author, build, arithmetic;
    Reply recorded = {};
    bool first = false;                       // the author's results wait: its first, or a doubt
    std::string auditor = {};                 // who differs from the author; "": nobody yet
    bool exact = false;                       // of the two: a dispute
    std::map<std::string, Reply> again = {};  // of the auditor, and of those who decide
    uint64_t since_ms = 0;                    // of a dispute: when it had its last answer
    uint64_t tries = 0;                       // workers that did not answer in time
    std::set<std::string> asked = {};
  };
  struct Batch {
    v1::AuditTasks tasks;
    uint64_t since_ms = 0;
    std::vector<uint64_t> audits;  // numbers, in the order of the tasks
  };

  void draw(const Audit& whole, bool unit);
  void begin(Audit audit, uint32_t first, uint32_t count);
  // Returns true if an answer has another score or task; `exact`: or another other score.
  static bool differs(const v1::QuestionScore& a, const v1::QuestionScore& b, bool exact);
  bool compare(Audit* audit, const v1::AuditAnswers& from, const v1::AuditAnswer& answer);
  bool decide(const Audit& audit);
  bool judge(const Audit& audit);
  void tally(const Audit& audit, size_t open);
  // Returns how many workers differ from the author in an answer.
  static size_t differingAt(const Audit& audit, size_t answer);
  // Returns how many more are asked, of those who may answer an audit in which two differ.
  size_t stillOpen(const Audit& audit) const;
  void mark(std::string worker, const std::string& how);
  void nextIsFirst(const Audit& audit);
  void see(const std::string& worker, const std::string& build, const std::string& arithmetic);
  void giveBack(const std::string& worker, const Batch& batch, bool late);
  void endDisputes();
  void dropHopeless();
  uint64_t patienceMs(const std::string& worker) const;
  bool isLive(const Live& worker, uint64_t within_ms) const {
    return now_ - worker.seen_ms < within_ms;
  }
  bool isExact(const Audit& audit, const std::string& build, const std::string& arithmetic) const;
  // Returns the other workers, seen within so many ms, that may answer and have not: for a dispute
  // those of the author's build and arithmetic alone. Where two differ, proven ones if there are.
  std::vector<std::string> auditors(const Audit& audit, uint64_t within_ms) const;
  // Draws the next auditor; "" if all are busy. fresh: what is to be asked in this call.
  std::string drawAuditor(const Audit& audit, const std::map<std::string, Batch>& fresh);
  v1::AuditedWorker& of(const std::string& worker);
  std::string summary() const;

  AuditDraws random_;
  const bool repeats_;
  double share_ = 0;
  uint64_t now_ = 0;                  // of the last setWorkers()
  std::map<std::string, Live> live_;  // those that could work when they were seen last
  std::map<std::string, v1::AuditedWorker> workers_;
  std::map<uint64_t, Audit> open_;  // by number, in order of age
  std::map<std::string, Batch> asked_;
  std::set<std::string> silent_;  // live workers that left an audit without an answer
  std::set<std::string> proven_;  // at the last ask(): workers whose first audit is over
  std::map<std::string, std::string> put_aside_;
  uint64_t next_ = 0;
  uint64_t batches_ = random_();  // number of the next batch; workers see it, and no later draw
  uint64_t places_ = 0;           // workers compared with other devices
  v1::AuditStatus counts_;
};

}  // namespace allot
