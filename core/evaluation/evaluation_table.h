#pragma once
// What evaluations came to: accuracies with intervals, and the KV cache read. Pure, one thread.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/evaluation/question_scores.h"
#include "core/evaluation/score_statistics.h"
#include "core/learning/schedule.h"

namespace allot {

// Graded answers.
struct ScoreTally {
  uint64_t n = 0;
  double sum = 0;
  // One a question: its score, or in a complete cell with repeats their mean.
  ScoreCounts scores;
  // 95 %, over questions: interval95 once the cell is complete, before that wilson95 of as many
  // questions as the answers would be with all their repeats.
  Interval interval = {0, 1};

  double mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
};

// What decoding read, against what dense attention would have read.
struct KvReads {
  uint64_t unique_rows = 0;  // value rows, per head
  uint64_t dense_rows = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t dense_bytes = 0;

  void add(const v1::DecodeCounts& counts);
  // Shares; negative where nothing was counted. Keys and values have as many bytes each, so that a
  // key share is one of half the bytes; it passes 1 where a shadow is read beside all keys.
  double bytesShare() const;
  double keyShare() const;
  double valueRowsShare() const;
};

// How prompts were read, summed over one a question.
struct PrefillReads {
  v1::PrefillCounts sums;

  void add(const v1::PrefillCounts& counts);
  // Means of a prompt; shares of what dense attention does; negative where nothing was counted.
  double seconds() const;           // until the first token
  double selectionSeconds() const;  // of those, choosing blocks
  // Blocks whose values were read; where each query is for itself, value rows.
  double density() const;
  double bytesShare() const;
  double keptMass() const;
  double leastKeptMass() const;
};

// One cell of the grid, summed over the units recorded so far.
struct EvaluationCell {
  uint64_t version = 0;
  std::string prefill;  // "dense", ...
  std::string method;   // methodsName(): of both phases
  std::string schedule_name;
  uint64_t total_budget = 0;
  SampleSchedule schedule;
  uint32_t repeats = 1;  // times that each question is answered (repeatsOf)
  ScoreTally all;
  std::map<uint32_t, ScoreTally> tasks;  // by index in spec.task.tasks
  ScoreTally other;                      // the same answers by the paper's other grader, if any
  std::vector<double> repeat_sums;       // of scores, by repeat
  uint64_t answer_tokens = 0;            // of all answers; 0: not counted
  // Of a complete cell, on the same questions as the other, where that is complete too: above dense
  // attention, and above the uniform schedule of the same method and budget.
  std::optional<PairedDifference> over_dense, over_uniform;
  KvReads reads;
  PrefillReads prompts;
  double seconds = 0;
  double decode_seconds = 0;
  uint64_t decode_steps = 0;  // of rows
  bool complete = false;      // all.n is the whole held-out set, in all repeats

  // Of a tally: questions, each with all its repeats.
  uint64_t questionsOf(const ScoreTally& tally) const { return tally.n / repeats; }
  uint64_t questions() const { return questionsOf(all); }
  // What papers report beside a mean over repeats: the standard deviation of the repeats'
  // accuracies (repeats - 1 in the denominator). Nothing of one repeat, or of an incomplete cell.
  std::optional<double> repeatDeviation() const;
  // Means; negative where nothing was counted.
  double answerTokens() const;  // of an answer, its end included
  double promptTokens() const;  // of a prompt, as far as the prefill reads it
};

// Adds results up, whatever the order in which they come.
class EvaluationTable {
 public:
  // kNewest: for a process that must not grow by what was ever evaluated. Of the learned schedules'
  // lines (a method's cells of one version at all budgets) it keeps the newest two complete ones
  // and whatever is not complete; of older ones the cell at the spec's total budget, without its
  // tasks, thinned to about a thousand versions.
  enum class Keep { kAll, kNewest };
  explicit EvaluationTable(const v1::Experiment& experiment, Keep keep = Keep::kAll);

  // A result that can be (whyImpossible); measures other than accuracy are passed over.
  void add(const v1::EvaluationResult& result);
  // By version, method, schedule name, budget.
  std::vector<EvaluationCell> cells();
  // How much higher `a` scores than `b` on the same questions, both complete cells of this table;
  // nothing if one is not, or its questions' scores are not kept any more.
  std::optional<PairedDifference> difference(const EvaluationCell& a,
                                             const EvaluationCell& b) const;
  // Mean score of this method's newest complete learned cell at this budget; negative if there is
  // none.
  double learnedAccuracy(const std::string& method, uint64_t total_budget) const;

 private:
  using Key = std::tuple<uint64_t, std::string, std::string, uint64_t>;

  // What each question of a cell scored. By the other grader only where there are repeats.
  struct Questions {
    QuestionScores scores, others;
  };

  void addScores(const v1::EvaluationResult& result, const Key& key, EvaluationCell* cell);
  void countMeans(const Key& key, EvaluationCell* cell) const;
  void setIntervals(const Key& key, EvaluationCell* cell) const;
  bool compare(const Key& key, EvaluationCell* cell) const;
  void thinOut(const EvaluationCell& completed);
  void thinLine(const std::string& method, uint64_t version);

  Keep keep_;
  uint32_t held_out_;
  const v1::Spec spec_;  // how often cells are answered
  RunStreams streams_;
  uint64_t total_budget_;
  size_t budgets_;  // of a line
  std::map<Key, EvaluationCell> cells_;
  std::map<Key, EvaluationCell*> unsettled_;  // complete, their intervals not computed
  std::map<Key, Questions> questions_;        // not of thinned cells
  std::set<Key> uncompared_;                  // complete, and what they are compared with is not
  std::vector<uint8_t> tasks_;                // of questions, where cells have repeats
  // Of learned schedules, by method: how many cells of a version are complete; the versions that
  // are complete lines; those of which one cell is left.
  std::map<std::string, std::map<uint64_t, size_t>> complete_;
  std::map<std::string, std::set<uint64_t>> lines_, points_;
};

}  // namespace allot
