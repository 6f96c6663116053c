#pragma once
// Recorded distributions of scores, and the dual basis from which keys with given scores are made.
// Pure functions, except readScoreProfiles, which reads a file; any thread; no CUDA.
#include <string>
#include <vector>

namespace allot::bench {

// A profile is the scaled scores of one recorded step and head, ascending, minus their mean.
// Softmax ignores a constant.
struct ScoreProfiles {
  std::vector<float> scores;  // all profiles, one after the other
  std::vector<int> offsets;   // profile i has scores offsets[i] .. offsets[i + 1] - 1
  size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

// Reads every step and head of a file of recorded attention states (tests/golden). Returns no
// profiles if the file is missing, truncated or has another format.
ScoreProfiles readScoreProfiles(const std::string& path);

// Computes the dual basis of q within its span: q_i . dual_h is 1 if i = h, else 0. For any vector
// n, the key n + sum_h (t_h - q_h . n) dual_h has the dot product t_h with each query q_h.
// q, dual: [group, dim].
// Requires: the q_h are linearly independent.
void dualBasis(const float* q, int group, int dim, float* dual);

}  // namespace allot::bench
