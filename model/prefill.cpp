#include "model/prefill.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "allot/kernels/dense_ops.h"
#include "model/prefill_attention.h"

namespace allot {
namespace {

// Queries are handled in pieces of at most this many, so that the score matrix stays small and the
// keys after a piece, which causality masks anyway, cost nothing.
constexpr int64_t kQueryPiece = 256;
// And so many that the matrix, heads x queries x keys, has no more numbers than this: 512 MiB, of
// which there are a few at once.
constexpr int64_t kMostScores = int64_t{1} << 27;

constexpr int64_t kMlpPiece = 2048;

// Positions that a table of angles has at least.
constexpr int64_t kFewestAngles = 1024;

at::Tensor view(const float* data, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(data), shape, at::kFloat);
}

at::Tensor project(const at::Tensor& x, const Matrix& matrix, const std::vector<float>& rows) {
  return at::mm(x, view(rows.data(), {matrix.outputs, matrix.inputs}).t());
}

at::Tensor project(const at::Tensor& x, const Matrix& matrix) {
  return project(x, matrix, matrix.rows);
}

at::Tensor normalise(const at::Tensor& x, const std::vector<float>& weight, float eps) {
  at::Tensor out = at::empty_like(x);
  kernels::rmsNorm(x.data_ptr<float>(), weight.data(), static_cast<int>(x.size(0)),
                   static_cast<int>(x.size(1)), eps, out.data_ptr<float>());
  return out;
}

at::Tensor mlp(const at::Tensor& x, const LayerWeights& w) {
  const at::Tensor gate_up = project(x, w.gate_up);
  at::Tensor gated = at::empty({x.size(0), w.down.inputs}, at::kFloat);
  kernels::gatedSilu(gate_up.data_ptr<float>(), static_cast<int>(x.size(0)),
                     static_cast<int>(w.down.inputs), gated.data_ptr<float>());
  return project(gated, w.down);
}

// Applies positions 0..n-1 to the queries and keys of qkv [n, heads + 2 kv_heads, d], in place.
void rotate(const ModelConfig& config, const RopeTable& rope, at::Tensor* qkv) {
  const int64_t d = config.head_dim, row = (config.heads + 2 * config.kv_heads) * d;
  float* data = qkv->data_ptr<float>();
  for (int64_t i = 0; i < qkv->size(0); ++i) {
    kernels::applyRope(data + i * row, static_cast<int>(config.heads + config.kv_heads),
                       static_cast<int>(d), rope.cosines.data() + i * (d / 2),
                       rope.sines.data() + i * (d / 2));
  }
}

// Writes [n, kv_heads, d] each to the pages of an empty sequence.
Status store(const at::Tensor& keys, const at::Tensor& values, const kernels::PagedKv& kv,
             const std::vector<int32_t>& pages, int64_t layer) {
  const at::Tensor k = keys.contiguous(), v = values.contiguous();
  const int32_t start = 0;
  const auto refusal = kernels::appendKv(kv, {.keys = k.data_ptr<float>(),
                                              .values = v.data_ptr<float>(),
                                              .page_table = pages.data(),
                                              .starts = &start,
                                              .rows = 1,
                                              .count = static_cast<int>(k.size(0)),
                                              .max_pages = static_cast<int>(pages.size())});
  if (!refusal) return {};
  return fail(ErrorCode::kData, "prefill, layer " + std::to_string(layer) + ": " + *refusal);
}

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

namespace {

// The frequency of the channels i and i + head_dim / 2, as RopeScaling says.
double scaled(const RopeScaling& scaling, int64_t i, double frequency) {
  if (!scaling.factors.empty()) return frequency / scaling.factors[static_cast<size_t>(i)];
  if (scaling.factor == 1) return frequency;
  // How many waves the original positions hold.
  const double waves = static_cast<double>(scaling.original_positions) * frequency / (2 * M_PI);
  const double share = (waves - scaling.low_frequency) /
                       (static_cast<double>(scaling.high_frequency) - scaling.low_frequency);
  const double kept = std::clamp(share, 0.0, 1.0);
  return frequency * (kept + (1 - kept) / scaling.factor);
}

}  // namespace

bool RopeTable::cover(const ModelConfig& config, int64_t positions) {
  const int64_t half = config.head_dim / 2;
  const int64_t there = static_cast<int64_t>(cosines.size()) / half;
  if (positions <= there) return false;
  const auto doubled = std::bit_ceil(static_cast<uint64_t>(std::max(positions, kFewestAngles)));
  const int64_t made = std::min(static_cast<int64_t>(doubled), config.max_positions);
  // Beside the old ones, and both there before either is taken: memory may be short.
  std::vector<float> more_cosines(static_cast<size_t>(made * half));
  std::vector<float> more_sines(more_cosines.size());
  std::copy(cosines.begin(), cosines.end(), more_cosines.begin());
  std::copy(sines.begin(), sines.end(), more_sines.begin());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency =
        scaled(config.rope_scaling, i,
               std::pow(static_cast<double>(config.rope_theta), -2.0 * i / config.head_dim));
    for (int64_t p = there; p < made; ++p) {
      more_cosines[p * half + i] = static_cast<float>(std::cos(p * frequency));
      more_sines[p * half + i] = static_cast<float>(std::sin(p * frequency));
    }
  }
  cosines = std::move(more_cosines);
  sines = std::move(more_sines);
  return true;
}

Result<std::vector<float>> prefillDense(const ModelConfig& config, const Weights& weights,
                                        const RopeTable& rope, const std::vector<int32_t>& ids,
                                        const std::vector<int32_t>& pages, const KvPool& pool) {
  const c10::InferenceMode guard;
  const int64_t n = static_cast<int64_t>(ids.size()), d = config.head_dim;
  at::Tensor x = at::empty({n, config.hidden_size}, at::kFloat);
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(weights.embeddings.data() + ids[i] * config.hidden_size, config.hidden_size,
                x.data_ptr<float>() + i * config.hidden_size);
  }
  for (int64_t l = 0; l < config.layers; ++l) {
    const LayerWeights& w = weights.layers[l];
    at::Tensor qkv = project(normalise(x, w.attention_norm, config.rms_norm_eps), w.qkv);
    if (!w.qkv_bias.empty()) qkv += view(w.qkv_bias.data(), {w.qkv.outputs});
    qkv = qkv.view({n, config.heads + 2 * config.kv_heads, d});
    rotate(config, rope, &qkv);
    const auto parts = qkv.split_with_sizes({config.heads, config.kv_heads, config.kv_heads}, 1);
    ALLOT_TRY(store(parts[1], parts[2], pool.layer(l), pages, l));
    // Nothing reads the last layer's output but at the last position.
    const int64_t first = l + 1 == config.layers ? n - 1 : 0;
    x = x.slice(0, first);
    x = x + project(causalAttention(config, parts[0], parts[1], parts[2], first), w.output);
    // In pieces: these activations are the widest, and no position needs another's.
    for (int64_t i = 0; i < x.size(0); i += kMlpPiece) {
      at::Tensor piece = x.slice(0, i, std::min(i + kMlpPiece, x.size(0)));
      piece += mlp(normalise(piece, w.mlp_norm, config.rms_norm_eps), w);
    }
  }
  const at::Tensor logits =
      project(normalise(x.slice(0, x.size(0) - 1), weights.final_norm, config.rms_norm_eps),
              weights.head, weights.headRows())
          .contiguous();
  const float* data = logits.data_ptr<float>();
  // What the last layer makes is not in any cache, where it would have been checked.
  if (!std::all_of(data, data + config.vocab_size, [](float x) { return std::isfinite(x); })) {
    return fail(ErrorCode::kData, "prefill: the logits are not finite");
  }
  return std::vector<float>(data, data + config.vocab_size);
}

}  // namespace allot
