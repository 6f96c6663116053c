#pragma once
// QuestionScores: the score of each question of one cell, summed over the cell's repeats. Takes
// about 6 bytes a question. Sums are integers, so that the order of add() calls does not matter.
// One thread.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/evaluation/score_statistics.h"

namespace allot {

class QuestionScores {
 public:
  // Adds a score in 0..1, rounded to 2^-24.
  // Requires: a question gets at most 100 scores.
  void add(uint32_t question, double score);

  // Returns the values of sum / repeats, each with the number of questions that have it. If
  // `counts` is given, only questions for which it returns true are counted.
  ScoreCounts means(uint32_t repeats, const std::function<bool(uint32_t)>& counts = {}) const;

  // Returns sum / repeats less `other`'s sum / other_repeats for each question with scores in both,
  // ordered by question.
  std::vector<double> less(const QuestionScores& other, uint32_t repeats,
                           uint32_t other_repeats) const;

 private:
  static constexpr uint32_t kBlock = 32;  // questions
  // By question / kBlock: 1 + the sum in units of 2^-24; 0: no score.
  std::map<uint32_t, std::array<uint32_t, kBlock>> blocks_;
};

}  // namespace allot
