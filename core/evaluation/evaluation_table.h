#pragma once
// Adds up evaluations: accuracies with intervals, and reads of the KV cache. Pure, one thread.
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

// Graded answers: their number and the sum of their scores.
struct ScoreTally {
  uint64_t n = 0;
  double sum = 0;
  // The questions by score; with repeats by mean score, set by EvaluationTable::cells(). Empty in a
  // thinned cell (EvaluationTable::Keep).
  ScoreCounts scores;
  // The 95 % interval of the mean: interval95() of a complete cell; wilson95() of an incomplete
  // one, with n / repeats as the number of scores. A thinned cell may have either.
  Interval interval = {0, 1};

  double mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
};

// Reads of decoding, and the reads of dense attention for the same steps.
struct KvReads {
  uint64_t unique_rows = 0;  // value rows, per head
  uint64_t dense_rows = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t dense_bytes = 0;

  void add(const v1::DecodeCounts& counts);
  // Shares of dense attention's reads; negative if nothing was counted. keyShare() is the key bytes
  // over half of dense_bytes. It exceeds 1 if a method reads a shadow copy of the keys beside all
  // keys.
  double bytesShare() const;
  double keyShare() const;
  double valueRowsShare() const;
};

// Reads of prompts, summed over units.
struct PrefillReads {
  v1::PrefillCounts sums;

  void add(const v1::PrefillCounts& counts);
  // Return means over prompts in seconds, or shares of dense attention. Negative if nothing was
  // counted.
  double seconds() const;           // until the first token
  double selectionSeconds() const;  // of seconds(), for the choice of blocks
  // Returns the share of blocks whose values were read, or of value rows if no blocks were counted.
  double density() const;
  double bytesShare() const;
  double keptMass() const;       // softmax weight of the keys read, mean over queries
  double leastKeptMass() const;  // the least of a query
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
  // Of a complete cell: its difference to dense attention, and to the uniform schedule of the same
  // method and budget, on the same questions; nothing until that cell is complete, too. Of the
  // newest complete cells of a run those to dense are one family of Holm's rule, and those to
  // uniform another; the others have none.
  std::optional<PairedDifference> over_dense, over_uniform;
  KvReads reads;
  PrefillReads prompts;
  double seconds = 0;
  double decode_seconds = 0;
  uint64_t decode_steps = 0;  // summed over answers
  bool complete = false;      // has all held-out questions in all repeats

  // Returns the answers of a tally divided by the repeats.
  uint64_t questionsOf(const ScoreTally& tally) const { return tally.n / repeats; }
  uint64_t questions() const { return questionsOf(all); }
  // Returns the standard deviation of the repeats' accuracies (repeats - 1 in the denominator).
  // Nothing for one repeat, or an incomplete or thinned cell.
  std::optional<double> repeatDeviation() const;
  // Return means; negative if nothing was counted.
  double answerTokens() const;  // of an answer, with its end-of-text token
  double promptTokens() const;  // of the part of a prompt that the prefill reads
};

// Adds up results, in any order.
class EvaluationTable {
 public:
  // kNewest bounds the memory of a long run. A line is the learned cells of one method and version
  // at all budgets. For each method, the newest two complete lines and all incomplete ones stay
  // whole. Of older lines only the cell at the spec's total budget stays, thinned (without
  // details), for at most a thousand versions.
  enum class Keep { kAll, kNewest };
  explicit EvaluationTable(const v1::Experiment& experiment, Keep keep = Keep::kAll);

  // Adds a result; measures other than accuracy are ignored.
  // Requires: the result is possible (whyImpossible).
  void add(const v1::EvaluationResult& result);
  // Returns the cells, ordered by version, method, schedule name, budget.
  std::vector<EvaluationCell> cells();
  // Returns by how much `a` scores higher than `b` on the same questions. Nothing unless `a` and
  // `b` are complete cells of this table that are not thinned.
  std::optional<PairedDifference> difference(const EvaluationCell& a,
                                             const EvaluationCell& b) const;
  // Returns by how much each question scores higher in `a` of this table than in `b` of `other`, by
  // question. Nothing unless both are complete cells that are not thinned.
  // Requires: both tables are of the same held-out questions.
  std::optional<std::vector<double>> differences(const EvaluationCell& a,
                                                 const EvaluationTable& other,
                                                 const EvaluationCell& b) const;
  // Returns the mean score of this method's newest complete learned cell at this budget; negative
  // if there is none.
  double learnedAccuracy(const std::string& method, uint64_t total_budget) const;

 private:
  using Key = std::tuple<uint64_t, std::string, std::string, uint64_t>;

  // Scores of each question of a cell, by the grader and (only with repeats) by the other grader.
  struct Questions {
    QuestionScores scores, others;
  };

  void addScores(const v1::EvaluationResult& result, const Key& key, EvaluationCell* cell);
  void countMeans(const Key& key, EvaluationCell* cell) const;
  void setIntervals(const Key& key, EvaluationCell* cell) const;
  bool compare(const Key& key, EvaluationCell* cell) const;
  const QuestionScores* scoresOf(const EvaluationCell& cell) const;  // null: thinned
  void thinOut(const EvaluationCell& completed);
  void thinLine(const std::string& method, uint64_t version);

  Keep keep_;
  uint32_t held_out_;
  v1::Spec spec_;  // for the number of repeats
  RunStreams streams_;
  uint64_t total_budget_;
  size_t budgets_;  // of a line
  std::map<Key, EvaluationCell> cells_;
  std::map<Key, EvaluationCell*> unsettled_;  // complete, without intervals yet
  std::map<Key, Questions> questions_;        // except of thinned cells
  std::set<Key> uncompared_;                  // complete, over_dense or over_uniform missing
  std::vector<uint8_t> tasks_;                // of questions, if cells have repeats
  // Of learned schedules, by method: the number of complete cells in each incomplete line; the
  // versions of complete lines that are kept whole; the versions with one cell left.
  std::map<std::string, std::map<uint64_t, size_t>> complete_;
  std::map<std::string, std::set<uint64_t>> lines_, points_;
};

}  // namespace allot
