#include "core/evaluation/question_scores.h"

#include <cmath>

namespace allot {
namespace {

constexpr double kOne = 1 << 24;

}  // namespace

void QuestionScores::add(uint32_t question, double score) {
  uint32_t& sum = blocks_[question / kBlock][question % kBlock];
  if (sum == 0) sum = 1;
  sum += static_cast<uint32_t>(std::lround(score * kOne));
}

ScoreCounts QuestionScores::means(uint32_t repeats,
                                  const std::function<bool(uint32_t)>& counts) const {
  ScoreCounts means;
  for (const auto& [number, block] : blocks_) {
    for (uint32_t i = 0; i < kBlock; ++i) {
      if (block[i] == 0 || (counts && !counts(number * kBlock + i))) continue;
      ++means[(block[i] - 1) / (kOne * repeats)];
    }
  }
  return means;
}

std::vector<double> QuestionScores::less(const QuestionScores& other, uint32_t repeats,
                                         uint32_t other_repeats) const {
  std::vector<double> differences;
  for (const auto& [number, block] : blocks_) {
    const auto found = other.blocks_.find(number);
    if (found == other.blocks_.end()) continue;
    for (uint32_t i = 0; i < kBlock; ++i) {
      if (block[i] == 0 || found->second[i] == 0) continue;
      // Over a common denominator, so that equal means have the difference 0.
      const auto mine = int64_t{block[i] - 1} * other_repeats;
      const auto others = int64_t{found->second[i] - 1} * repeats;
      differences.push_back(static_cast<double>(mine - others) / (kOne * repeats * other_repeats));
    }
  }
  return differences;
}

}  // namespace allot
