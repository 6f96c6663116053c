#include "kernels/cpu/bernoulli.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "allot/kernels/philox_streams.h"

namespace allot::kernels {
namespace {

// Random access to the words of one set of draws. Four neighbours cost one Philox call.
class Words {
 public:
  Words(uint64_t seed, uint32_t sequence, uint32_t step, uint32_t stream, uint32_t first_block)
      : seed_(seed), sequence_(sequence), step_(step), stream_(stream), first_(first_block) {}

  // Uniform in [0, 1) on a grid of 2^-32.
  double uniform(uint32_t index) {
    if (index / 4 != block_) {
      block_ = index / 4;
      words_ = philox(seed_, sequence_, step_, stream_, first_ | block_);
    }
    return words_[index % 4] * 0x1.0p-32;
  }

 private:
  uint64_t seed_;
  uint32_t sequence_, step_, stream_, first_;
  uint32_t block_ = UINT32_MAX;
  std::array<uint32_t, 4> words_{};
};

// Draws n_i of a feature that is hit with probability p.
//
// Stratified: stratum b of [0, 1) is [b / B, (b + 1) / B). Strata b < floor(B p) lie under p and
// count, whatever their u_b; strata b > floor(B p) lie above p and do not. Stratum floor(B p)
// counts if its u_b < B p - floor(B p). One uniform number a feature therefore gives the same
// distribution as B of them.
uint32_t hits(const MethodOptions& options, double p, uint32_t feature, Words* words) {
  const uint32_t samples = options.feature_samples;
  if (!options.iid_features) {
    const double expected = samples * p;
    const double whole = std::floor(expected);
    const bool undecided = words->uniform(feature) < expected - whole;
    return static_cast<uint32_t>(whole) + (undecided ? 1 : 0);
  }
  uint32_t count = 0;
  for (uint32_t b = 0; b < samples; ++b) {
    count += words->uniform(feature * samples + b) < p ? 1 : 0;
  }
  return count;
}

double meanMagnitude(const float* queries, int group, int head_dim, int feature) {
  double total = 0;
  for (int g = 0; g < group; ++g) {
    total += std::fabs(queries[static_cast<int64_t>(g) * head_dim + feature]);
  }
  return total / group;
}

// One set of hits for the queries of `group` heads: their mean magnitude decides. With group 1 it
// is the plain estimator, since then q (|q|max n / B) / |q| = sign(q) |q|max n / B. Returns the
// features read.
uint32_t sparseQueries(const MethodOptions& options, const float* queries, int group, int head_dim,
                       Words words, float* out) {
  double largest = 0;
  for (int i = 0; i < head_dim; ++i) {
    largest = std::max(largest, meanMagnitude(queries, group, head_dim, i));
  }
  uint32_t features = 0;
  for (int i = 0; i < head_dim; ++i) {
    const double mean = meanMagnitude(queries, group, head_dim, i);
    const uint32_t n =
        mean > 0 ? hits(options, mean / largest, static_cast<uint32_t>(i), &words) : 0;
    const double factor = n > 0 ? largest / mean * n / options.feature_samples : 0;
    for (int g = 0; g < group; ++g) {
      const int64_t at = static_cast<int64_t>(g) * head_dim + i;
      out[at] = static_cast<float>(queries[at] * factor);
    }
    features += n > 0 ? 1 : 0;
  }
  return features;
}

}  // namespace

void bernoulliQueries(const MethodOptions& options, const float* queries, int group, int head_dim,
                      uint64_t seed, uint32_t sequence, uint32_t step, uint32_t layer,
                      int first_head, float* out_queries, uint32_t* features_per_head,
                      uint32_t* group_features) {
  const uint32_t first_stream = attentionStream(layer, static_cast<uint32_t>(first_head));
  if (options.mean_group_query) {
    const Words words(seed, sequence, step, first_stream, kGroupFeatureBlocks);
    *group_features = sparseQueries(options, queries, group, head_dim, words, out_queries);
    std::fill_n(features_per_head, group, *group_features);
    return;
  }
  for (int g = 0; g < group; ++g) {
    const int64_t at = static_cast<int64_t>(g) * head_dim;
    const Words words(seed, sequence, step, first_stream + static_cast<uint32_t>(g),
                      kFeatureBlocks);
    features_per_head[g] =
        sparseQueries(options, queries + at, 1, head_dim, words, out_queries + at);
  }
  *group_features = 0;
  for (int i = 0; i < head_dim; ++i) {
    bool read = false;
    for (int g = 0; g < group; ++g) {
      read = read || out_queries[static_cast<int64_t>(g) * head_dim + i] != 0;
    }
    *group_features += read ? 1 : 0;
  }
}

}  // namespace allot::kernels
