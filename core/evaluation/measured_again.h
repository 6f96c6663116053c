#pragma once
// Compares recorded scores, and what stands beside them, with those of the same answers measured
// again (`allot verify --measure`). Pure functions, any thread.
#include <cstdint>
#include <map>
#include <string>

namespace allot {

// Numbers of answers, by the comparison of the recorded score with the score measured again.
struct AgainCounts {
  uint64_t answers = 0;
  uint64_t higher = 0;    // the recorded score is higher
  uint64_t lower = 0;     // the recorded score is lower
  double may_differ = 0;  // bound of the mean number that differ (kAgainPerToken)
  // With another one than recorded (AgainLabels).
  uint64_t tasks = 0, other_scores = 0, lengths = 0, texts = 0;
  uint64_t differing() const { return higher + lower; }
};

// What differs of an answer beside its score, and must be equal: the task always, the rest if both
// answers come from the same arithmetic and a deterministic method.
struct AgainLabels {
  bool task = false;
  bool other_score = false;
  bool length = false;
  bool text = false;
  bool any() const { return task || other_score || length || text; }
};

// The largest change of a mean score, up or down, that another device or program may cause.
inline constexpr double kAgainMargin = 0.01;

// The assumed largest probability for each token of an answer that another device or program
// changes the answer's score. The sum over an answer's tokens is cut to 0.5. Measured: 0.0016 on a
// GPU against a CPU (docs/operations.md).
inline constexpr double kAgainPerToken = 0.005;

// The least number of answers of each evaluation cell that a sample has, if the cell has as many.
inline constexpr int kAgainFloor = 64;

// Returns an upper bound of the probability that counts are as one-sided as these or more, if
// another device or program shifts the mean by kAgainMargin at most. This is a two-sided exact sign
// test with a margin. Given the number of differing answers, the more frequent direction is
// binomial with a share of at most 1/2 + kAgainMargin * answers / (2 * differing).
double againProbability(const AgainCounts& counts);

// Returns an upper bound of the probability of this number of differing answers, or more, if at
// most may_differ of them differ on average: a binomial tail, which bounds the sum of trials with
// unequal probabilities (Hoeffding 1956).
double againDifferingProbability(const AgainCounts& counts);

enum class AgainVerdict {
  kEqual,     // every score and label is equal
  kAgrees,    // scores differ no more than another device or program explains
  kDisagrees  // an exact score or a label differs, too many scores do, or too many in one direction
};

class MeasuredAgain {
 public:
  // Adds an answer. cell: version and cell of an evaluation, or "" for an episode's answer. exact:
  // both scores come from the same arithmetic and a deterministic method, so that they must be
  // equal. tokens: number in the answer measured again.
  void add(const std::string& worker, const std::string& cell, bool exact, double recorded,
           double again, uint32_t tokens, const AgainLabels& differing = {});

  // Returns the verdict. With honest workers it is kDisagrees in at most 1 of 1,000 runs. Each
  // worker, each cell and the whole run has two tests, againProbability() and
  // againDifferingProbability(). Each test has an equal share of the error of 1 in 1,000
  // (Bonferroni).
  AgainVerdict verdict() const;
  // Return true if a test of these scores fails, or if one that is exact or a label differs.
  bool isSuspect(const std::string& worker) const { return isSuspect(workers_, worker); }
  bool isSuspectCell(const std::string& cell) const { return isSuspect(cells_, cell); }

  const AgainCounts& all() const { return all_.counts; }
  std::map<std::string, AgainCounts> byWorker() const { return countsOf(workers_); }
  std::map<std::string, AgainCounts> byCell() const { return countsOf(cells_); }

 private:
  struct Group {
    AgainCounts counts;
    uint64_t wrong = 0;  // answers with an exact score or a label that differs
  };
  using Groups = std::map<std::string, Group>;

  static std::map<std::string, AgainCounts> countsOf(const Groups& groups);
  bool isSuspect(const Groups& groups, const std::string& name) const;
  bool isSuspect(const Group& group) const;

  Group all_;
  Groups workers_, cells_;
};

}  // namespace allot
