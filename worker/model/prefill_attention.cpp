#include "worker/model/prefill_attention.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace allot {
namespace {

// Most queries in a piece. The score matrix stays small, and keys after a piece, which causality
// masks anyway, cost nothing.
constexpr int64_t kQueryPiece = 256;
// Most numbers of the matrix heads x queries x keys: 512 MiB. A few of them exist at once.
constexpr int64_t kMostScores = int64_t{1} << 27;

}  // namespace

int64_t queriesAtOnce(const ModelConfig& config, int64_t positions) {
  const int64_t window = config.sliding_window;
  const int64_t keys = window > 0 ? std::min(positions, window + kQueryPiece) : positions;
  int64_t queries = kQueryPiece;
  while (queries > 1 && queries * config.heads * keys > kMostScores) queries /= 2;
  return queries;
}

at::Tensor causalAttention(const ModelConfig& config, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, int64_t first) {
  const int64_t n = q.size(0), d = config.head_dim;
  const int64_t group = config.heads / config.kv_heads;
  const at::Tensor keys = k.permute({1, 2, 0});    // [kv_heads, d, n]
  const at::Tensor values = v.permute({1, 0, 2});  // [kv_heads, n, d]
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  const int64_t piece = queriesAtOnce(config, n);
  std::vector<at::Tensor> pieces;
  for (int64_t start = first; start < n; start += piece) {
    const int64_t end = std::min(n, start + piece), count = end - start;
    // Query i sees the keys after i - window; no query of the piece sees those before `oldest`.
    const int64_t window = config.sliding_window;
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, start + 1 - window) : 0;
    const int64_t seen = end - oldest;
    // The group's queries side by side: [kv_heads, group * count, d].
    const at::Tensor queries = q.slice(0, start, end)
                                   .view({count, config.kv_heads, group, d})
                                   .permute({1, 2, 0, 3})
                                   .reshape({config.kv_heads, group * count, d});
    at::Tensor scores = at::bmm(at::mul(queries, scale), keys.slice(2, oldest, end));
    scores = scores.view({config.kv_heads, group, count, seen});
    const at::Tensor mask =
        at::full({count, count}, -std::numeric_limits<float>::infinity(), q.options()).triu_(1);
    scores.slice(3, start - oldest, seen).add_(mask);
    if (window > 0 && end > window) {
      scores.add_(at::full({count, seen}, -std::numeric_limits<float>::infinity(), q.options())
                      .tril_(start - window - oldest));
    }
    const at::Tensor weights = at::softmax(scores, -1).view({config.kv_heads, group * count, seen});
    pieces.push_back(at::bmm(weights, values.slice(1, oldest, end))
                         .view({config.kv_heads, group, count, d})
                         .permute({2, 0, 1, 3})
                         .reshape({count, config.heads * d}));
  }
  return at::cat(pieces, 0);
}

}  // namespace allot
