#pragma once
// Bernoulli scores: the score stage in which a query is replaced by a sparse one (SANTA paper,
// Section 5 and Appendix C).
//
// With q_max = max_i |q_i| and p_i = |q_i| / q_max, feature i gets n_i of B possible hits and
//   q^_i = sign(q_i) q_max n_i / B,   E n_i = B p_i,   so E[q^ . k] = q . k for every key.
// The paper's mean of B ternary vectors is linear in the keys, so one pass over them with q^ gives
// its scores. Their softmax is not unbiased: E exp(q^ . k) > exp(q . k).
//
// The draws of a feature are
//   stratified  n_i = #{b < B : (b + u_b) / B < p_i} = floor(B p_i) or that plus 1;
//               Var q^_i = (q_max / B)^2 f (1 - f), f the fraction of B p_i; read with min(1, B
//               p_i)
//   iid         n_i ~ Binomial(B, p_i); Var q^_i = q_max^2 p_i (1 - p_i) / B; read with
//               1 - (1 - p_i)^B
//
// Mean group query: with qbar_i = mean_g |q_gi| over the group's query heads, one set of hits n_i
// is drawn from qbar, and q^_gi = q_gi (qbar_max n_i / B) / qbar_i: unbiased for every head, and
// all heads read the same features.
//
// A feature whose n_i is 0 is not read. Keys kept feature-major ([head_dim, n]) then cost
// features * n * element size bytes; rows of keys as the cache has them save nothing.
// Pure function, any thread, no allocation.
#include <cstdint>

#include "allot/kernels/method.h"

namespace allot::kernels {

// Sets out_queries [group, head_dim] to the q^ of `queries` [group, head_dim]; features_per_head
// [group] to the features that each head reads and *group_features to their union. Uses
// feature_samples (>= 1), iid_features and mean_group_query of the options.
//
// Random numbers: blocks from kFeatureBlocks on of each head's stream; for the mean group query the
// head is first_head, the group's first, and blocks are from kGroupFeatureBlocks on.
void bernoulliQueries(const MethodOptions& options, const float* queries, int group, int head_dim,
                      uint64_t seed, uint32_t sequence, uint32_t step, uint32_t layer,
                      int first_head, float* out_queries, uint32_t* features_per_head,
                      uint32_t* group_features);

}  // namespace allot::kernels
