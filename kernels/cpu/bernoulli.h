#pragma once
// Bernoulli scores, a score stage that replaces a query by a sparse one (SANTA paper, Section 5 and
// Appendix C). Private to kernels/cpu. Pure function, any thread, no allocation.
//
// With q_max = max_i |q_i| and p_i = |q_i| / q_max, feature i gets n_i of B possible hits and
//   q^_i = sign(q_i) q_max n_i / B,   E n_i = B p_i,   so E[q^ . k] = q . k for every key.
// q^ is the mean of the paper's B ternary vectors, so that one pass over the keys with q^ gives the
// paper's scores. The softmax of these scores is biased: E exp(q^ . k) > exp(q . k).
//
// The hits of a feature are
//   stratified  n_i = #{b < B : (b + u_b) / B < p_i} = floor(B p_i) or that plus 1;
//               Var q^_i = (q_max / B)^2 f (1 - f), f the fractional part of B p_i;
//               n_i > 0 with probability min(1, B p_i)
//   iid         n_i ~ Binomial(B, p_i); Var q^_i = q_max^2 p_i (1 - p_i) / B;
//               n_i > 0 with probability 1 - (1 - p_i)^B
//
// Mean group query: with qbar_i = mean_g |q_gi| over the group's query heads, one set of hits n_i
// is drawn from qbar, and q^_gi = q_gi (qbar_max n_i / B) / qbar_i. q^_g is unbiased for every head
// g, and all heads read the same features.
//
// A feature with n_i = 0 is not read. Keys stored feature by feature ([head_dim, n]) would cost
// (features read) * n * element size bytes. The cache stores keys one by one and saves nothing.
#include <cstdint>

#include "allot/kernels/method.h"

namespace allot::kernels {

// Writes out_queries [group, head_dim], the q^ of `queries` [group, head_dim]; features_per_head
// [group], how many features each head reads; and *group_features, how many features some head
// reads. Uses feature_samples, iid_features and mean_group_query of the options.
// Requires: feature_samples >= 1.
//
// Random numbers are blocks from kFeatureBlocks on of each head's stream; of a mean group query,
// blocks from kGroupFeatureBlocks on of the stream of first_head, the group's first head.
void bernoulliQueries(const MethodOptions& options, const float* queries, int group, int head_dim,
                      uint64_t seed, uint32_t sequence, uint32_t step, uint32_t layer,
                      int first_head, float* out_queries, uint32_t* features_per_head,
                      uint32_t* group_features);

}  // namespace allot::kernels
