#pragma once
// Compares recorded scores with those of the same answers measured again (`allot verify
// --measure`). Pure functions, any thread.
#include <cstdint>
#include <map>
#include <string>

namespace allot {

// Answers by the comparison of the recorded score with the one that was measured again.
struct AgainCounts {
  uint64_t answers = 0;
  uint64_t higher = 0;    // the recorded score is higher
  uint64_t lower = 0;     // it is lower
  double may_differ = 0;  // answers that another device or program may change, at most
  uint64_t differing() const { return higher + lower; }
};

// The shift of a mean score, either way, that another device or program may cause.
inline constexpr double kAgainMargin = 0.01;

// The assumed largest probability that another device or program changes the score of an answer,
// for each of its tokens. A whole answer has at most a half. Measured: 0.0016 on a GPU against a
// CPU (docs/operations.md).
inline constexpr double kAgainPerToken = 0.005;

// Returns an upper bound of the probability of counts as one-sided as these, or more so, if the
// mean recorded score is within kAgainMargin of the mean that is measured again. Given the number
// of differing answers, the more frequent direction is binomial with a share of at most
// 1/2 + margin * answers / (2 * differing): an exact sign test with a margin, both directions.
double againProbability(const AgainCounts& counts);

// Returns an upper bound of the probability of this number of differing answers, or more, if at
// most may_differ of them differ on average: a binomial tail, which bounds the sum of trials with
// unequal probabilities (Hoeffding 1956).
double againDifferingProbability(const AgainCounts& counts);

enum class AgainVerdict {
  kEqual,     // every score is equal
  kAgrees,    // scores differ, as another device or program makes them differ
  kDisagrees  // scores differ where the arithmetic is equal, too many, or too many in one direction
};

// The comparison of a run's results, by worker.
class MeasuredAgain {
 public:
  // Adds an answer. exact: both scores were computed by the same arithmetic, and a program that is
  // run again gives the same answer: they must be equal. tokens: of the answer measured again.
  void add(const std::string& worker, bool exact, double recorded, double again, uint32_t tokens);

  // Returns the verdict. With honest workers it is kDisagrees in at most 1 of 1,000 runs. Each
  // worker and the whole run is tested twice, each time with an equal share of that error
  // (Bonferroni).
  AgainVerdict verdict() const;
  // Returns true if this worker's scores, or one exact score of it, gave the verdict kDisagrees.
  bool isSuspect(const std::string& worker) const;

  const AgainCounts& all() const { return all_; }
  const std::map<std::string, AgainCounts>& byWorker() const { return workers_; }

 private:
  bool isUnlikely(const AgainCounts& counts) const;

  AgainCounts all_;
  std::map<std::string, AgainCounts> workers_;
  std::map<std::string, uint64_t> wrong_;  // exact scores that differ, by worker
};

}  // namespace allot
