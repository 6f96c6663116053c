#include "kernels/bench/score_profiles.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "tests/kernels/recall_states.h"

namespace allot::bench {
namespace {

std::vector<float> scoresOf(const kernels::RecallBlock& block, uint32_t step, uint32_t head) {
  const size_t dim = block.head_dim, kv_head = head / (block.heads / block.kv_heads);
  const float* query = &block.queries[(size_t{step} * block.heads + head) * dim];
  std::vector<float> scores(static_cast<size_t>(block.length(step)));
  for (size_t j = 0; j < scores.size(); ++j) {
    const float* key = &block.keys[(j * block.kv_heads + kv_head) * dim];
    scores[j] =
        std::inner_product(query, query + dim, key, 0.0f) / std::sqrt(static_cast<float>(dim));
  }
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  const float mean = static_cast<float>(sum / static_cast<double>(scores.size()));
  for (float& score : scores) score -= mean;
  std::sort(scores.begin(), scores.end());
  return scores;
}

}  // namespace

ScoreProfiles readScoreProfiles(const std::string& path) {
  ScoreProfiles profiles;
  if (path.empty()) return profiles;
  for (const kernels::RecallBlock& block : kernels::readRecallStates(path)) {
    for (uint32_t step = 0; step < block.steps; ++step) {
      for (uint32_t head = 0; head < block.heads; ++head) {
        const std::vector<float> scores = scoresOf(block, step, head);
        profiles.offsets.push_back(static_cast<int>(profiles.scores.size()));
        profiles.scores.insert(profiles.scores.end(), scores.begin(), scores.end());
      }
    }
  }
  if (!profiles.offsets.empty()) {
    profiles.offsets.push_back(static_cast<int>(profiles.scores.size()));
  }
  return profiles;
}

void dualBasis(const float* q, int group, int dim, float* dual) {
  // Gauss-Jordan on the products of the vectors, which are positive definite: no pivoting.
  const size_t g = static_cast<size_t>(group), d = static_cast<size_t>(dim);
  std::vector<double> products(g * g), inverse(g * g);
  for (size_t i = 0; i < g; ++i) {
    inverse[i * g + i] = 1;
    for (size_t j = 0; j < g; ++j) {
      products[i * g + j] = std::inner_product(q + i * d, q + (i + 1) * d, q + j * d, 0.0);
    }
  }
  for (size_t i = 0; i < g; ++i) {
    const double pivot = products[i * g + i];
    for (size_t j = 0; j < g; ++j) {
      products[i * g + j] /= pivot;
      inverse[i * g + j] /= pivot;
    }
    for (size_t k = 0; k < g; ++k) {
      const double factor = products[k * g + i];
      if (k == i || factor == 0) continue;
      for (size_t j = 0; j < g; ++j) {
        products[k * g + j] -= factor * products[i * g + j];
        inverse[k * g + j] -= factor * inverse[i * g + j];
      }
    }
  }
  for (size_t h = 0; h < g; ++h) {
    for (size_t e = 0; e < d; ++e) {
      double sum = 0;
      for (size_t i = 0; i < g; ++i) sum += inverse[h * g + i] * q[i * d + e];
      dual[h * d + e] = static_cast<float>(sum);
    }
  }
}

}  // namespace allot::bench
