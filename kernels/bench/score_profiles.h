#pragma once
// The scores that peaked keys are made to have, and the algebra that makes keys have them. Pure
// functions; no CUDA.
#include <string>
#include <vector>

namespace allot::bench {

// Scores of one recorded step and head each, ascending, their mean taken off (a softmax does not
// see it).
struct ScoreProfiles {
  std::vector<float> scores;  // one profile behind the other
  std::vector<int> offsets;   // of profile i: offsets[i] .. offsets[i + 1]
  size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

// Every step and head of a file of recorded attention states (tests/golden). Empty if the file is
// not one.
ScoreProfiles readScoreProfiles(const std::string& path);

// Vectors q'_h in the span of `group` vectors q_h of `dim` numbers, with q_g . q'_h = 1 where g
// and h are equal and else 0: the key n + sum_h (t_h - q_h . n) q'_h has the products t_h, whatever
// n is. The q_h must be linearly independent.
void dualBasis(const float* q, int group, int dim, float* dual);

}  // namespace allot::bench
