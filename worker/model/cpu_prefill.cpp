#include "worker/model/cpu_prefill.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "allot/kernels/dense_ops.h"
#include "worker/model/stopwatch.h"

namespace allot {
namespace {

// Positions that are computed at once, layer by layer. Memory beside keys and values grows with a
// chunk, not with the prompt. The size is a constant because the last bits of a product depend on
// its number of rows.
constexpr int64_t kChunk = 4096;
constexpr int64_t kMlpPiece = 2048;

// The least positions of a table of angles, if the model has as many.
constexpr int64_t kFewestAngles = 1024;

at::Tensor view(const float* data, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(data), shape, at::kFloat);
}

at::Tensor embeddings(const ModelConfig& config, const Weights& weights,
                      std::span<const int32_t> ids) {
  const auto count = static_cast<int64_t>(ids.size());
  at::Tensor x = at::empty({count, config.hidden_size}, at::kFloat);
  float* to = x.data_ptr<float>();
  for (const int32_t id : ids) {
    std::copy_n(weights.embeddings.data() + id * config.hidden_size, config.hidden_size, to);
    to += config.hidden_size;
  }
  return x;
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

// Applies the layer's norms and positions first, first + 1, ... to the queries and keys of qkv
// [count, heads + 2 kv_heads, d], in place. rope: null in a layer without positions.
void rotate(const ModelConfig& config, const LayerWeights& layer, const RopeTable* rope,
            int64_t first, at::Tensor* qkv) {
  const int64_t d = config.head_dim, row = (config.heads + 2 * config.kv_heads) * d;
  float* data = qkv->data_ptr<float>();
  for (int64_t i = 0; i < qkv->size(0); ++i) {
    const int64_t angle = (first + i) * (d / 2);
    normaliseHeads(layer, config, data + i * row, data + i * row + config.heads * d);
    if (rope == nullptr) continue;
    kernels::applyRope(data + i * row, static_cast<int>(config.heads + config.kv_heads),
                       static_cast<int>(d), rope->cosines.data() + angle,
                       rope->sines.data() + angle);
  }
}

Error refused(int64_t layer, const std::string& why) {
  return {ErrorCode::kData, "prefill, layer " + std::to_string(layer) + ": " + why};
}

// Writes keys and values, [count, kv_heads, d] each, to the pages, at positions from `first` on.
Status store(const PrefillTask& task, const at::Tensor& keys, const at::Tensor& values,
             const std::vector<int32_t>& pages, int64_t first, int64_t layer) {
  const at::Tensor k = keys.contiguous(), v = values.contiguous();
  const auto start = static_cast<int32_t>(first);
  const auto refusal =
      kernels::appendKv(task.pool.layer(layer), {.keys = k.data_ptr<float>(),
                                                 .values = v.data_ptr<float>(),
                                                 .page_table = pages.data(),
                                                 .starts = &start,
                                                 .rows = 1,
                                                 .count = static_cast<int>(k.size(0)),
                                                 .max_pages = static_cast<int>(pages.size()),
                                                 .saturated = task.saturated});
  if (!refusal) return {};
  return tl::unexpected(refused(layer, *refusal));
}

// Adds the share of each query's exact attention on its blocks: the quotient of two normalisers.
// kept: [count, heads], the logarithms of those over the blocks.
std::optional<std::string> addKeptMass(const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                                       const std::vector<float>& kept,
                                       kernels::PrefillWorkspace* space,
                                       PromptStatistics* statistics) {
  const Stopwatch watch(&statistics->measuring_seconds);
  std::vector<float> all(kept.size()), unused(kept.size() * static_cast<size_t>(kv.head_dim));
  kernels::PrefillInputs dense = in;
  dense.skip = 0;
  if (auto why = kernels::attendBlocks(kv, dense, nullptr, space,
                                       {.out = unused.data(), .lse = all.data()})) {
    return why;
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const double share = std::min(1.0, std::exp(static_cast<double>(kept[i]) - all[i]));
    statistics->kept_mass += share;
    statistics->least_kept_mass = std::min(statistics->least_kept_mass, share);
  }
  statistics->kept_queries += kept.size();
  return std::nullopt;
}

// Chooses blocks for the queries `in` and attends with those from position `first` on; out begins
// with that query. tau: [heads], SALE's.
std::optional<std::string> attendChosen(const PrefillTask& task, const kernels::PagedKv& kv,
                                        kernels::PrefillInputs in, int first,
                                        const std::vector<float>& tau, float* out) {
  const kernels::MethodOptions& method = task.reading.method;
  kernels::PrefillWorkspace* space = &task.spaces->blocks;
  kernels::BlockLists lists;
  const bool selects = kernels::makesLists(method);
  in.skip = kernels::skipThreshold(method);
  if (selects) {
    const Stopwatch watch(&task.statistics->selection_seconds);
    if (auto why = kernels::selectBlocks(method, kv, in, tau.data(), space, &lists)) return why;
  }
  kernels::PrefillInputs wanted = in;
  if (first > in.first) {
    wanted.first = first;
    wanted.count = in.first + in.count - first;
    wanted.queries += static_cast<int64_t>(first - in.first) * in.heads * kv.head_dim;
    if (selects) lists = lists.from(in, wanted);
  }
  const kernels::KeyBlocks view = lists.view();
  std::vector<float> kept;
  if (task.reading.measures_kept_mass) {
    kept.resize(static_cast<size_t>(wanted.count) * static_cast<size_t>(in.heads));
  }
  if (auto why = kernels::attendBlocks(kv, wanted, selects ? &view : nullptr, space,
                                       {.out = out,
                                        .lse = kept.empty() ? nullptr : kept.data(),
                                        .statistics = &task.statistics->blocks})) {
    return why;
  }
  if (kept.empty()) return std::nullopt;
  return addKeptMass(kv, wanted, kept, space, task.statistics);
}

// Returns the inputs for queries q [count, heads, d], at positions from `first` on.
kernels::PrefillInputs inputsOf(const ModelConfig& config, const at::Tensor& q,
                                const std::vector<int32_t>& pages, int64_t first) {
  return {.queries = q.data_ptr<float>(),
          .page_table = pages.data(),
          .max_pages = static_cast<int>(pages.size()),
          .first = static_cast<int>(first),
          .count = static_cast<int>(q.size(0)),
          .heads = static_cast<int>(config.heads),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
          .window = static_cast<int>(config.sliding_window)};
}

// Computes causal attention of queries [count, heads, d], at positions from `start` on, over the
// pages, within the model's window. Returns the outputs from position `first` on, [.., heads * d].
Result<at::Tensor> attend(const PrefillTask& task, const at::Tensor& queries,
                          const std::vector<int32_t>& pages, int64_t start, int64_t first,
                          int64_t layer) {
  const ModelConfig& config = task.config;
  const kernels::MethodOptions& method = task.reading.method;
  const bool chooses = kernels::choosesBlocks(method);
  // Blocks are chosen for all queries of a chunk, even if only some are wanted.
  const int64_t from = chooses ? start : first;
  const at::Tensor q = queries.slice(0, from - start).contiguous();
  const auto end = static_cast<int>(start + queries.size(0));
  const int64_t width = config.heads * config.head_dim;
  at::Tensor out = at::empty({end - first, width}, at::kFloat);
  const kernels::PagedKv kv = task.pool.layer(layer);
  kernels::PrefillInputs in = inputsOf(config, q, pages, from);
  float* const to = out.data_ptr<float>();
  std::optional<std::string> why;
  const kernels::Prompts by = kernels::traitsOf(method.method).prompts;
  if (by == kernels::Prompts::kAllKeys) {
    why = kernels::attendBlocks(kv, in, nullptr, &task.spaces->blocks,
                                {.out = to, .statistics = &task.statistics->blocks});
  } else if (!chooses) {
    std::vector<uint32_t> budgets = {UINT32_MAX};
    const ScheduleView schedule = task.reading.schedule;
    const bool by_heads =
        !schedule.empty() && layerBudgets({&schedule, 1}, config, layer, &budgets);
    const kernels::QueryDraws draws = {.seed = task.reading.seed,
                                       .sequence = task.reading.sequence,
                                       .layer = static_cast<uint32_t>(layer),
                                       .budget = budgets[0],
                                       .budgets = by_heads ? budgets.data() : nullptr,
                                       .zero_budget_window = task.zero_budget_window,
                                       .zero_budget_means = task.zero_budget_means};
    const kernels::PrefillOutputs whole = {.out = to, .statistics = &task.statistics->blocks};
    if (by == kernels::Prompts::kDrawnBlocks) {
      why = kernels::attendSampledBlocks(kv, in, draws, &task.spaces->blocks, whole);
    } else if (by == kernels::Prompts::kDrawnRows) {
      why = kernels::attendSampledRows(method, kv, in, draws, &task.spaces->blocks, whole);
    } else {
      why = kernels::attendQueries(method, kv, in, draws, &task.spaces->queries,
                                   {.out = to, .statistics = &task.statistics->rows});
    }
  } else {
    std::vector<float> tau;
    if (kernels::hasHeadThresholds(method)) {
      ALLOT_ASSIGN(tau, task.reading.saleTau(layer, config.heads));
    }
    const int part = kernels::selectionPositions(method, static_cast<int>(kChunk));
    while (!why && in.first < end) {
      in.count = std::min(end, (in.first / part + 1) * part) - in.first;
      const int wanted = std::max(in.first, static_cast<int>(first));
      if (wanted < in.first + in.count) {
        why = attendChosen(task, kv, in, wanted, tau, to + (wanted - first) * width);
      }
      in.queries += in.count * width;
      in.first += in.count;
    }
  }
  if (why) return tl::unexpected(refused(layer, *why));
  return out;
}

// Returns the channel, not rounded, of which the original positions hold this number of waves.
double channelOf(const ModelConfig& config, double waves) {
  const auto positions = static_cast<double>(config.rope_scaling.original_positions);
  return static_cast<double>(config.head_dim) * std::log(positions / (waves * 2 * M_PI)) /
         (2 * std::log(static_cast<double>(config.rope_theta)));
}

// Returns the share of the frequency that YaRN keeps in the channels i and i + head_dim / 2.
double keptByYarn(const ModelConfig& config, int64_t i) {
  const RopeScaling& scaling = config.rope_scaling;
  double first = channelOf(config, scaling.high_frequency);
  double last = channelOf(config, scaling.low_frequency);
  if (scaling.whole_channels) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(config.head_dim - 1));
  if (first == last) last += 1e-3;
  return 1 - std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
}

// Returns the frequency of the channels i and i + head_dim / 2.
double frequencyOf(const ModelConfig& config, int64_t i) {
  const RopeScaling& scaling = config.rope_scaling;
  const double frequency =
      std::pow(static_cast<double>(config.rope_theta), -2.0 * i / config.head_dim);
  if (!scaling.factors.empty()) return frequency / scaling.factors[static_cast<size_t>(i)];
  if (scaling.factor == 1) return frequency;
  double kept = 0;
  if (scaling.kind == RopeScaling::Kind::kYarn) kept = keptByYarn(config, i);
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    // How many waves the original positions hold.
    const double waves = static_cast<double>(scaling.original_positions) * frequency / (2 * M_PI);
    const double share = (waves - scaling.low_frequency) /
                         (static_cast<double>(scaling.high_frequency) - scaling.low_frequency);
    kept = std::clamp(share, 0.0, 1.0);
  }
  return frequency * (kept + (1 - kept) / scaling.factor);
}

}  // namespace

void normaliseHeads(const LayerWeights& layer, const ModelConfig& config, float* queries,
                    float* keys) {
  if (layer.query_norm.empty()) return;
  const auto width = static_cast<int>(config.head_dim);
  kernels::rmsNorm(queries, layer.query_norm.data(), static_cast<int>(config.heads), width,
                   config.rms_norm_eps, queries);
  kernels::rmsNorm(keys, layer.key_norm.data(), static_cast<int>(config.kv_heads), width,
                   config.rms_norm_eps, keys);
}

bool RopeTable::cover(const ModelConfig& config, int64_t positions) {
  const int64_t half = config.head_dim / 2;
  const int64_t there = static_cast<int64_t>(cosines.size()) / half;
  if (positions <= there) return false;
  const auto doubled = std::bit_ceil(static_cast<uint64_t>(std::max(positions, kFewestAngles)));
  const int64_t made = std::min(static_cast<int64_t>(doubled), config.max_positions);
  // Both new tables are allocated before the old ones are replaced: memory may be short.
  std::vector<float> more_cosines(static_cast<size_t>(made * half));
  std::vector<float> more_sines(more_cosines.size());
  std::copy(cosines.begin(), cosines.end(), more_cosines.begin());
  std::copy(sines.begin(), sines.end(), more_sines.begin());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = frequencyOf(config, i), magnitude = config.rope_scaling.magnitude;
    for (int64_t p = there; p < made; ++p) {
      more_cosines[p * half + i] = static_cast<float>(magnitude * std::cos(p * frequency));
      more_sines[p * half + i] = static_cast<float>(magnitude * std::sin(p * frequency));
    }
  }
  cosines = std::move(more_cosines);
  sines = std::move(more_sines);
  return true;
}

Result<std::vector<float>> readPrompt(const PrefillTask& task, const std::vector<int32_t>& ids,
                                      const std::vector<int32_t>& pages) {
  const c10::InferenceMode guard;
  const ModelConfig& config = task.config;
  const Weights& weights = task.weights;
  const auto n = static_cast<int64_t>(ids.size());
  at::Tensor x;
  for (int64_t start = 0; start < n; start += kChunk) {
    const int64_t end = std::min(n, start + kChunk);
    x = embeddings(config, weights, {ids.data() + start, ids.data() + end});
    for (int64_t l = 0; l < config.layers; ++l) {
      const LayerWeights& w = weights.layers[l];
      at::Tensor qkv = project(normalise(x, w.attention_norm, config.rms_norm_eps), w.qkv);
      if (!w.qkv_bias.empty()) qkv += view(w.qkv_bias.data(), {w.qkv.outputs});
      qkv = qkv.view({end - start, config.heads + 2 * config.kv_heads, config.head_dim});
      rotate(config, w, config.rotates(l) ? &task.rope : nullptr, start, &qkv);
      const auto parts = qkv.split_with_sizes({config.heads, config.kv_heads, config.kv_heads}, 1);
      ALLOT_TRY(store(task, parts[1], parts[2], pages, start, l));
      if (task.reading.observer) {
        const at::Tensor q = parts[0].contiguous();
        ALLOT_TRY(task.reading.observer(task.pool.layer(l), inputsOf(config, q, pages, start), l));
      }
      // Only the last position of the last layer's output is used.
      const bool last = l + 1 == config.layers;
      if (last && end < n) break;
      const int64_t first = last ? end - 1 : start;
      x = x.slice(0, first - start);
      ALLOT_ASSIGN(const at::Tensor attended, attend(task, parts[0], pages, start, first, l));
      x = x + project(attended, w.output);
      // In parts: these activations are the widest, and positions are independent.
      for (int64_t i = 0; i < x.size(0); i += kMlpPiece) {
        at::Tensor piece = x.slice(0, i, std::min(i + kMlpPiece, x.size(0)));
        piece += mlp(normalise(piece, w.mlp_norm, config.rms_norm_eps), w);
      }
    }
  }
  const at::Tensor logits =
      project(normalise(x.slice(0, x.size(0) - 1), weights.final_norm, config.rms_norm_eps),
              weights.head, weights.headRows())
          .contiguous();
  const float* data = logits.data_ptr<float>();
  // The last layer's output is in no cache and was therefore not checked yet.
  if (!std::all_of(data, data + config.vocab_size, [](float x) { return std::isfinite(x); })) {
    return fail(ErrorCode::kData, "prefill: the logits are not finite");
  }
  return std::vector<float>(data, data + config.vocab_size);
}

}  // namespace allot
