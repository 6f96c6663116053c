// The decoder on the CPU: LibTorch's matrix products for prompts, kernels/ for steps.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "worker/model/cpu_prefill.h"
#include "worker/model/decoder_backend.h"
#include "worker/model/stopwatch.h"

// Is present if LibTorch's BLAS is OpenBLAS, whose thread pool at::set_num_threads does not reach.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int count);

namespace allot {
namespace {

// Settings of the whole process, the same for every decoder in it.
void prepareProcess() {
  // One core a process: workers are the unit of scaling, and a fixed number of threads keeps the
  // order of every sum.
  at::set_num_threads(1);
  if (openblas_set_num_threads) openblas_set_num_threads(1);
  // A prefill's activations are blocks of some MiB that malloc would request and return each time.
  // A quarter of the prefill was spent on clearing pages.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

class CpuBackend final : public DecoderBackend {
 public:
  CpuBackend(const ModelConfig& config, Weights weights, KvPool pool, const KvPoolOptions& options)
      : config_(config),
        weights_(std::move(weights)),
        zero_budget_means_(options.zero_reads == ZeroReads::kMeanValue),
        zero_budget_window_(options.zero_reads == ZeroReads::kWindow ? options.zero_window : 0),
        pool_(std::move(pool)) {}

  std::string deviceName() const override { return "cpu"; }
  size_t weightBytes() const override { return weights_.bytes(); }
  KvPool& pool() override { return pool_; }
  Result<std::vector<float>> prefill(const std::vector<int32_t>& ids,
                                     const std::vector<int32_t>& pages,
                                     const PromptReading& reading,
                                     PromptStatistics* statistics) override {
    try {
      rope_.cover(config_, static_cast<int64_t>(ids.size()));
      return readPrompt({config_, weights_, rope_, pool_, reading, &prefill_spaces_, statistics,
                         zero_budget_means_, zero_budget_window_, &saturated_numbers},
                        ids, pages);
    } catch (const std::bad_alloc&) {
      return noRoomForPrompt(ids.size(), "memory");
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      if (what.find("allocate memory") != what.npos) return noRoomForPrompt(ids.size(), "memory");
      return fail(ErrorCode::kInternal, "prefill: " + what.substr(0, what.find('\n')));
    }
  }
  Result<std::span<const float>> step(const StepBatch& batch,
                                      std::vector<kernels::RowStatistics>* statistics) override;
  Result<std::span<const int32_t>> stepAndChoose(
      const StepBatch& batch, const TokenChoice& choice, const std::vector<uint32_t>& places,
      std::vector<kernels::RowStatistics>* statistics) override {
    ALLOT_ASSIGN(const std::span<const float> logits, step(batch, statistics));
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
      return fail(ErrorCode::kData, "decode: the logits are not finite");
    }
    const auto vocabulary = static_cast<size_t>(config_.vocab_size);
    chosen_.clear();
    for (size_t r = 0; r < places.size(); ++r) {
      chosen_.push_back(chooseToken(logits.subspan(r * vocabulary, vocabulary), choice, batch.seed,
                                    batch.sequences[r], places[r]));
    }
    return chosen_;
  }

  std::optional<std::string> attendAgain(const kernels::MethodOptions& method,
                                         const kernels::PagedKv& kv,
                                         const kernels::DecodeInputs& in,
                                         const kernels::DecodeOutputs& out) override {
    const int longest = *std::max_element(in.lengths, in.lengths + in.rows);
    again_.plan(longest, in.heads / kv.kv_heads, kv.head_dim);
    return kernels::decodeAttention(method, kv, in, &again_, out);
  }
  std::optional<std::string> tileSums(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                      uint32_t tile,
                                      std::vector<std::vector<double>>* masses) override {
    masses->clear();
    for (int r = 0; r < in.rows; ++r) {
      for (int h = 0; h < in.heads; ++h) {
        exactScores(kv, in, r, h, &scores_);
        masses->push_back(allot::tileSums(scores_, tile));
      }
    }
    return std::nullopt;
  }
  std::optional<std::string> rowOnHost(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                       int row, HostRow* held) override {
    const int32_t* pages = in.page_table + static_cast<int64_t>(row) * in.max_pages;
    *held = {.kv = kv, .pages = {pages, pages + in.max_pages}};
    return std::nullopt;
  }

 private:
  void resize(size_t rows) {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const auto q = static_cast<size_t>(config_.heads * config_.head_dim);
    const auto kv = static_cast<size_t>(config_.kv_heads * config_.head_dim);
    const auto mlp = static_cast<size_t>(config_.intermediate_size);
    x_.resize(rows * hidden);
    normed_.resize(rows * hidden);
    projected_.resize(rows * hidden);
    qkv_.resize(rows * (q + 2 * kv));
    queries_.resize(rows * q);
    keys_.resize(rows * kv);
    values_.resize(rows * kv);
    attended_.resize(rows * q);
    gate_up_.resize(rows * 2 * mlp);
    gated_.resize(rows * mlp);
    logits_.resize(rows * static_cast<size_t>(config_.vocab_size));
    newest_.resize(rows);
  }

  // Splits qkv_ [rows, (heads + 2 kv_heads) * d] into queries_, keys_ and values_, with norms of
  // heads (if any) and rotations.
  void split(const StepBatch& batch, int64_t layer, int rows) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const int d = static_cast<int>(config_.head_dim);
    const int q = static_cast<int>(config_.heads) * d, kv = static_cast<int>(config_.kv_heads) * d;
    for (int r = 0; r < rows; ++r) {
      const float* from = qkv_.data() + static_cast<size_t>(r) * (q + 2 * kv);
      float* query = queries_.data() + static_cast<size_t>(r) * q;
      float* key = keys_.data() + static_cast<size_t>(r) * kv;
      std::copy_n(from, q, query);
      std::copy_n(from + q, kv, key);
      std::copy_n(from + q + kv, kv, values_.data() + static_cast<size_t>(r) * kv);
      normaliseHeads(w, config_, query, key);
      if (!config_.rotates(layer)) continue;
      const size_t angle = static_cast<size_t>(batch.lengths[r] - 1) * (d / 2);
      kernels::applyRope(query, static_cast<int>(config_.heads), d, rope_.cosines.data() + angle,
                         rope_.sines.data() + angle);
      kernels::applyRope(key, static_cast<int>(config_.kv_heads), d, rope_.cosines.data() + angle,
                         rope_.sines.data() + angle);
    }
  }

  Status attend(const StepBatch& batch, int64_t layer, int rows,
                std::vector<kernels::RowStatistics>* statistics) {
    const auto refused = [layer](const std::string& why) {
      return fail(ErrorCode::kData, "decode, layer " + std::to_string(layer) + ": " + why);
    };
    for (int r = 0; r < rows; ++r) newest_[r] = batch.lengths[r] - 1;
    const bool has_method = !batch.only_layer || *batch.only_layer == layer;
    bool head_budgets = layerBudgets(batch.schedules, config_, layer, &budgets_);
    if (!has_method) {
      budgets_.assign(static_cast<size_t>(rows), UINT32_MAX);
      head_budgets = false;
    }
    const kernels::PagedKv kv = pool_.layer(layer);
    if (const auto why = kernels::appendKv(kv, {.keys = keys_.data(),
                                                .values = values_.data(),
                                                .page_table = batch.page_table.data(),
                                                .starts = newest_.data(),
                                                .rows = rows,
                                                .count = 1,
                                                .max_pages = batch.max_pages,
                                                .saturated = &saturated_numbers})) {
      return refused(*why);
    }
    if (zero_budget_means_) {
      zero_budget_values_.resize(static_cast<size_t>(rows * config_.kv_heads * config_.head_dim));
      kernels::meanValues(kv,
                          {.page_table = batch.page_table.data(),
                           .lengths = batch.lengths.data(),
                           .rows = rows,
                           .max_pages = batch.max_pages},
                          zero_budget_values_.data());
    }
    const kernels::DecodeInputs in{
        .queries = queries_.data(),
        .page_table = batch.page_table.data(),
        .lengths = batch.lengths.data(),
        .budgets = budgets_.data(),
        .sequences = batch.sequences.data(),
        .steps = batch.steps.data(),
        .rows = rows,
        .heads = static_cast<int>(config_.heads),
        .max_pages = batch.max_pages,
        .layer = static_cast<uint32_t>(layer),
        .seed = batch.seed,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
        .window = static_cast<int>(config_.sliding_window),
        .head_budgets = head_budgets,
        .zero_budget_values = zero_budget_means_ ? zero_budget_values_.data() : nullptr,
        .zero_budget_window = zero_budget_window_};
    if (const auto why = kernels::decodeAttention(
            has_method ? batch.method : kernels::MethodOptions{}, kv, in, &workspace_,
            {.out = attended_.data(),
             .statistics = statistics ? statistics->data() : nullptr,
             .sampling_seconds = measure_sampling ? &times.sampling : nullptr})) {
      return refused(*why);
    }
    if (batch.probe) batch.probe(kv, in, attended_.data());
    return {};
  }

  const ModelConfig config_;
  const Weights weights_;
  const bool zero_budget_means_;  // ZeroReads
  const int zero_budget_window_;
  RopeTable rope_;
  KvPool pool_;
  kernels::DecodeWorkspace workspace_;
  kernels::DecodeWorkspace again_;  // attendAgain()'s
  std::vector<float> scores_;       // of one head
  PrefillSpaces prefill_spaces_;
  // Activations of one step, [rows, ...].
  std::vector<float> x_, normed_, qkv_, queries_, keys_, values_, attended_, projected_, gate_up_,
      gated_, logits_;
  std::vector<int32_t> chosen_;
  std::vector<uint32_t> budgets_;
  std::vector<float> zero_budget_values_;  // of the layer, [rows, kv_heads, d]
  std::vector<int32_t> newest_;            // positions
};

Result<std::span<const float>> CpuBackend::step(const StepBatch& batch,
                                                std::vector<kernels::RowStatistics>* statistics) {
  const int rows = static_cast<int>(batch.tokens.size());
  const int hidden = static_cast<int>(config_.hidden_size);
  {
    const Stopwatch watch(&times.projections);
    resize(static_cast<size_t>(rows));
    int longest = 0;
    for (int32_t length : batch.lengths) longest = std::max(longest, length);
    workspace_.plan(longest, static_cast<int>(config_.heads / config_.kv_heads),
                    static_cast<int>(config_.head_dim));
    rope_.cover(config_, longest);
    for (int r = 0; r < rows; ++r) {
      std::copy_n(weights_.embeddings.data() + static_cast<size_t>(batch.tokens[r]) * hidden,
                  hidden, x_.data() + static_cast<size_t>(r) * hidden);
    }
  }
  for (int64_t l = 0; l < config_.layers; ++l) {
    const LayerWeights& w = weights_.layers[l];
    {
      const Stopwatch watch(&times.projections);
      kernels::rmsNorm(x_.data(), w.attention_norm.data(), rows, hidden, config_.rms_norm_eps,
                       normed_.data());
      w.qkv.packed.multiply(normed_.data(), rows, qkv_.data());
      for (int r = 0; r < rows && !w.qkv_bias.empty(); ++r) {
        kernels::addTo(qkv_.data() + r * w.qkv.outputs, w.qkv_bias.data(), w.qkv.outputs);
      }
      split(batch, l, rows);
    }
    {
      const Stopwatch watch(&times.attention);
      ALLOT_TRY(attend(batch, l, rows, statistics));
    }
    const Stopwatch watch(&times.projections);
    const int64_t count = static_cast<int64_t>(rows) * hidden;
    w.output.packed.multiply(attended_.data(), rows, projected_.data());
    kernels::addTo(x_.data(), projected_.data(), count);
    kernels::rmsNorm(x_.data(), w.mlp_norm.data(), rows, hidden, config_.rms_norm_eps,
                     normed_.data());
    w.gate_up.packed.multiply(normed_.data(), rows, gate_up_.data());
    kernels::gatedSilu(gate_up_.data(), rows, static_cast<int>(config_.intermediate_size),
                       gated_.data());
    w.down.packed.multiply(gated_.data(), rows, projected_.data());
    kernels::addTo(x_.data(), projected_.data(), count);
  }
  const Stopwatch watch(&times.projections);
  kernels::rmsNorm(x_.data(), weights_.final_norm.data(), rows, hidden, config_.rms_norm_eps,
                   normed_.data());
  weights_.head.packed.multiply(normed_.data(), rows, logits_.data());
  return std::span<const float>(logits_);
}

}  // namespace

Result<std::unique_ptr<DecoderBackend>> makeCpuBackend(const ModelConfig& config, Weights weights,
                                                       const KvPoolOptions& options) {
  ALLOT_ASSIGN(KvPool pool, KvPool::create(config, options));
  prepareProcess();
  return std::unique_ptr<DecoderBackend>(
      std::make_unique<CpuBackend>(config, std::move(weights), std::move(pool), options));
}

}  // namespace allot
