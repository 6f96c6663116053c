#include "model/decoder.h"

#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/prefill.h"
#include "model/weights.h"

// There if LibTorch's BLAS is OpenBLAS, whose own thread pool at::set_num_threads does not reach.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int count);

namespace allot {
namespace {

// Settings of the whole process, the same for every decoder in it.
void prepareProcess() {
  // One process is one core's worth of work: workers are what is scaled, and a fixed thread count
  // keeps every sum in the same order.
  at::set_num_threads(1);
  if (openblas_set_num_threads) openblas_set_num_threads(1);
  // A prefill's activations are blocks of some MiB that malloc would take from the system and give
  // back each time: a quarter of the prefill went into clearing pages.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

// Adds the time until it goes out of scope to a total.
class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    *total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  Weights weights;
  RopeTable rope;
  KvPool pool;
  Times times;
  bool measure_sampling = false;
  kernels::DecodeWorkspace workspace;
  // Activations of one step, [rows, ...].
  std::vector<float> x, normed, qkv, queries, keys, values, attended, projected, gate_up, gated,
      logits;
  std::vector<uint32_t> budgets;
  std::vector<int32_t> newest;  // positions

  void resize(size_t rows) {
    const auto hidden = static_cast<size_t>(config.hidden_size);
    const auto q = static_cast<size_t>(config.heads * config.head_dim);
    const auto kv = static_cast<size_t>(config.kv_heads * config.head_dim);
    const auto mlp = static_cast<size_t>(config.intermediate_size);
    x.resize(rows * hidden);
    normed.resize(rows * hidden);
    projected.resize(rows * hidden);
    qkv.resize(rows * (q + 2 * kv));
    queries.resize(rows * q);
    keys.resize(rows * kv);
    values.resize(rows * kv);
    attended.resize(rows * q);
    gate_up.resize(rows * 2 * mlp);
    gated.resize(rows * mlp);
    logits.resize(rows * static_cast<size_t>(config.vocab_size));
    budgets.resize(rows);
    newest.resize(rows);
  }

  // qkv [rows, (heads + 2 kv_heads) * d] -> queries, keys (both rotated) and values.
  void split(const StepBatch& batch, int rows) {
    const int d = static_cast<int>(config.head_dim);
    const int q = static_cast<int>(config.heads) * d, kv = static_cast<int>(config.kv_heads) * d;
    for (int r = 0; r < rows; ++r) {
      const float* from = qkv.data() + static_cast<size_t>(r) * (q + 2 * kv);
      float* query = queries.data() + static_cast<size_t>(r) * q;
      float* key = keys.data() + static_cast<size_t>(r) * kv;
      std::copy_n(from, q, query);
      std::copy_n(from + q, kv, key);
      std::copy_n(from + q + kv, kv, values.data() + static_cast<size_t>(r) * kv);
      const size_t angle = static_cast<size_t>(batch.lengths[r] - 1) * (d / 2);
      kernels::applyRope(query, static_cast<int>(config.heads), d, rope.cosines.data() + angle,
                         rope.sines.data() + angle);
      kernels::applyRope(key, static_cast<int>(config.kv_heads), d, rope.cosines.data() + angle,
                         rope.sines.data() + angle);
    }
  }

  Status attend(const StepBatch& batch, int64_t layer, int rows,
                std::vector<kernels::RowStatistics>* statistics) {
    const auto refused = [layer](const std::string& why) {
      return fail(ErrorCode::kData, "decode, layer " + std::to_string(layer) + ": " + why);
    };
    for (int r = 0; r < rows; ++r) {
      budgets[r] = batch.schedules[r][layer];
      newest[r] = batch.lengths[r] - 1;
    }
    const kernels::PagedKv kv = pool.layer(layer);
    if (const auto why = kernels::appendKv(kv, {.keys = keys.data(),
                                                .values = values.data(),
                                                .page_table = batch.page_table.data(),
                                                .starts = newest.data(),
                                                .rows = rows,
                                                .count = 1,
                                                .max_pages = batch.max_pages})) {
      return refused(*why);
    }
    const kernels::DecodeInputs in{
        .queries = queries.data(),
        .page_table = batch.page_table.data(),
        .lengths = batch.lengths.data(),
        .budgets = budgets.data(),
        .sequences = batch.sequences.data(),
        .steps = batch.steps.data(),
        .rows = rows,
        .heads = static_cast<int>(config.heads),
        .max_pages = batch.max_pages,
        .layer = static_cast<uint32_t>(layer),
        .seed = batch.seed,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))};
    if (const auto why = kernels::decodeAttention(
            batch.method, kv, in, &workspace,
            {.out = attended.data(),
             .statistics = statistics ? statistics->data() : nullptr,
             .sampling_seconds = measure_sampling ? &times.sampling : nullptr})) {
      return refused(*why);
    }
    if (batch.probe) batch.probe(kv, in, attended.data());
    return {};
  }
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const std::string& folder,
                                               const KvPoolOptions& options) {
  ALLOT_ASSIGN(ModelConfig config, ModelConfig::load(folder));
  ALLOT_ASSIGN(Weights weights, Weights::load(folder, config));
  ALLOT_ASSIGN(KvPool pool, KvPool::create(config, options));
  prepareProcess();
  RopeTable rope = RopeTable::make(config, config.max_positions);
  auto impl = std::make_unique<Impl>();
  impl->config = std::move(config);
  impl->weights = std::move(weights);
  impl->rope = std::move(rope);
  impl->pool = std::move(pool);
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

const ModelConfig& Decoder::config() const { return impl_->config; }
uint64_t Decoder::parameters() const { return impl_->weights.parameters; }
size_t Decoder::weightBytes() const { return impl_->weights.bytes(); }
const std::string& Decoder::weightsDigest() const { return impl_->weights.digest; }
KvPool& Decoder::pool() { return impl_->pool; }
const Decoder::Times& Decoder::times() const { return impl_->times; }
void Decoder::measureSampling() { impl_->measure_sampling = true; }

Result<Prompt> Decoder::prefill(const std::vector<int32_t>& ids) {
  const Stopwatch watch(&impl_->times.prefill);
  const ModelConfig& config = impl_->config;
  if (ids.empty() || static_cast<int64_t>(ids.size()) > config.max_positions) {
    return badInput("a prompt of " + std::to_string(ids.size()) +
                    " tokens does not fit the model: 1.." + std::to_string(config.max_positions) +
                    " are allowed");
  }
  for (int32_t id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return badInput("token " + std::to_string(id) + " is outside the model's vocabulary of " +
                      std::to_string(config.vocab_size) +
                      ": tokenizer.json does not belong to this model");
    }
  }
  auto pages = impl_->pool.allocate(impl_->pool.pagesFor(ids.size()));
  if (!pages) {
    return badInput("the memory for keys and values is full: raise --kv-memory");
  }
  Prompt prompt{std::move(*pages), static_cast<int32_t>(ids.size()), {}};
  auto logits = prefillDense(config, impl_->weights, impl_->rope, ids, prompt.pages, impl_->pool);
  if (!logits) {
    release(&prompt);
    return tl::unexpected<Error>(std::move(logits.error()));
  }
  prompt.first_logits = std::move(*logits);
  return prompt;
}

void Decoder::release(Prompt* prompt) {
  impl_->pool.release(prompt->pages);
  *prompt = {};
}

Result<std::span<const float>> Decoder::step(const StepBatch& batch,
                                             std::vector<kernels::RowStatistics>* statistics) {
  Impl& m = *impl_;
  const int rows = static_cast<int>(batch.tokens.size());
  const int hidden = static_cast<int>(m.config.hidden_size);
  {
    const Stopwatch watch(&m.times.projections);
    m.resize(static_cast<size_t>(rows));
    int longest = 0;
    for (int32_t length : batch.lengths) longest = std::max(longest, length);
    m.workspace.plan(longest, static_cast<int>(m.config.heads / m.config.kv_heads),
                     static_cast<int>(m.config.head_dim));
    for (int r = 0; r < rows; ++r) {
      std::copy_n(m.weights.embeddings.data() + static_cast<size_t>(batch.tokens[r]) * hidden,
                  hidden, m.x.data() + static_cast<size_t>(r) * hidden);
    }
  }
  for (int64_t l = 0; l < m.config.layers; ++l) {
    const LayerWeights& w = m.weights.layers[l];
    {
      const Stopwatch watch(&m.times.projections);
      kernels::rmsNorm(m.x.data(), w.attention_norm.data(), rows, hidden, m.config.rms_norm_eps,
                       m.normed.data());
      w.qkv.packed.multiply(m.normed.data(), rows, m.qkv.data());
      m.split(batch, rows);
    }
    {
      const Stopwatch watch(&m.times.attention);
      ALLOT_TRY(m.attend(batch, l, rows, statistics));
    }
    const Stopwatch watch(&m.times.projections);
    const int64_t count = static_cast<int64_t>(rows) * hidden;
    w.output.packed.multiply(m.attended.data(), rows, m.projected.data());
    kernels::addTo(m.x.data(), m.projected.data(), count);
    kernels::rmsNorm(m.x.data(), w.mlp_norm.data(), rows, hidden, m.config.rms_norm_eps,
                     m.normed.data());
    w.gate_up.packed.multiply(m.normed.data(), rows, m.gate_up.data());
    kernels::gatedSilu(m.gate_up.data(), rows, static_cast<int>(m.config.intermediate_size),
                       m.gated.data());
    w.down.packed.multiply(m.gated.data(), rows, m.projected.data());
    kernels::addTo(m.x.data(), m.projected.data(), count);
  }
  const Stopwatch watch(&m.times.projections);
  kernels::rmsNorm(m.x.data(), m.weights.final_norm.data(), rows, hidden, m.config.rms_norm_eps,
                   m.normed.data());
  m.weights.head.packed.multiply(m.normed.data(), rows, m.logits.data());
  return std::span<const float>(m.logits);
}

}  // namespace allot
