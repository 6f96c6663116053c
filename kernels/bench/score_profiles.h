#pragma once
// Recorded distributions of scores, and the algebra that gives keys such scores. Pure functions,
// any thread; no CUDA.
#include <string>
#include <vector>

namespace allot::bench {

// Profiles: the scores of one recorded step and head each, ascending, less their mean, which
// softmax ignores.
struct ScoreProfiles {
  std::vector<float> scores;  // all profiles, one after the other
  std::vector<int> offsets;   // profile i has scores offsets[i] .. offsets[i + 1] - 1
  size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

// Reads every step and head of a file of recorded attention states (tests/golden). Returns no
// profiles if the file is not one.
ScoreProfiles readScoreProfiles(const std::string& path);

// Computes dual [group, dim], the vectors q'_h in the span of q [group, dim] with q_g . q'_h = 1 if
// g = h and else 0. The key n + sum_h (t_h - q_h . n) q'_h then has the products t_h for every n.
// Requires: the q_h are linearly independent.
void dualBasis(const float* q, int group, int dim, float* dual);

}  // namespace allot::bench
