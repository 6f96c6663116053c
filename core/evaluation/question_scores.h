#pragma once
// What each question of one cell scored, summed over the cell's repeats: intervals over questions
// and differences between cells that share questions are made from it. Some 6 bytes a question.
// Sums are whole numbers, so that the order in which scores come does not matter. One thread.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/evaluation/score_statistics.h"

namespace allot {

class QuestionScores {
 public:
  // A score in 0..1, kept to 2^-24; a question has at most 100 of them.
  void add(uint32_t question, double score);

  // The questions' means over so many repeats, by how often each mean is there: of all questions,
  // or of those that `counts` says.
  ScoreCounts means(uint32_t repeats, const std::function<bool(uint32_t)>& counts = {}) const;

  // The mean of each question that both have, less the other's; by question.
  std::vector<double> less(const QuestionScores& other, uint32_t repeats,
                           uint32_t other_repeats) const;

 private:
  static constexpr uint32_t kBlock = 32;  // questions
  // By question / kBlock: the sum, in units of 2^-24, and one; 0: no score.
  std::map<uint32_t, std::array<uint32_t, kBlock>> blocks_;
};

}  // namespace allot
