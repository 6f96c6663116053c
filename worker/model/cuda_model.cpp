#include "worker/model/cuda_model.h"

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "worker/model/cpu_prefill.h"
#include "worker/model/cuda_device.h"
#include "worker/model/cuda_ops.h"

namespace allot {
namespace {

// Plans grow in steps, so that the workspace is not replaced with every token of a sequence.
constexpr int kPlannedKeys = 1024;

// Rounds up to whole tiles. Unused rows cost nothing as long as reading weights takes longest.
int64_t wholeTiles(int64_t rows) {
  constexpr int64_t kTile = CudaProducts::kRowTile;
  return (rows + kTile - 1) / kTile * kTile;
}

at::TensorOptions onGpu(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}

at::Tensor upload(const std::vector<float>& from, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(from.data()), shape, at::kFloat).to(at::kCUDA);
}

at::Tensor pinned(int64_t count, at::ScalarType type) {
  return at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(true));
}

// Makes cuBLAS sum in float32, whatever the environment says.
void prepareProcess() {
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
}

}  // namespace

Result<CudaWeights> CudaWeights::load(const ModelConfig& config, const std::string& path,
                                      WeightType type, Weights* read) {
  const c10::InferenceMode guard;
  const int64_t hidden = config.hidden_size;
  const at::ScalarType number = type == WeightType::kFloat32 ? at::kFloat : at::kBFloat16;
  const auto matrix = [&](const std::vector<float>& rows, int64_t outputs, int64_t inputs) {
    return upload(rows, {outputs, inputs}).to(number);
  };
  const auto product = [&](const Matrix& m) { return matrix(m.rows, m.outputs, m.inputs).t(); };
  CudaWeights on_gpu;
  ALLOT_ASSIGN(*read, Weights::loadByLayer(path, config, [&](const LayerWeights& layer) {
    on_gpu.layers.push_back({.attention_norm = upload(layer.attention_norm, {hidden}),
                             .qkv = product(layer.qkv),
                             .output = product(layer.output),
                             .mlp_norm = upload(layer.mlp_norm, {hidden}),
                             .gate_up = product(layer.gate_up),
                             .down = product(layer.down)});
    CudaLayer& made = on_gpu.layers.back();
    if (!layer.qkv_bias.empty()) made.qkv_bias = upload(layer.qkv_bias, {layer.qkv.outputs});
    if (layer.query_norm.empty()) return;
    made.query_norm = upload(layer.query_norm, {config.head_dim});
    made.key_norm = upload(layer.key_norm, {config.head_dim});
  }));
  on_gpu.embeddings = matrix(read->embeddings, config.vocab_size, hidden);
  on_gpu.final_norm = upload(read->final_norm, {hidden});
  on_gpu.head = read->head.rows.empty() ? on_gpu.embeddings.t() : product(read->head);
  // Frees float32 copies, so that the cache of keys and values can use their memory.
  c10::cuda::CUDACachingAllocator::emptyCache();
  return on_gpu;
}

CudaWeights CudaWeights::random(const ModelConfig& config, uint64_t seed) {
  const c10::InferenceMode guard;
  at::manual_seed(seed);
  const int64_t hidden = config.hidden_size, d = config.head_dim;
  const auto matrix = [](int64_t outputs, int64_t inputs) {
    at::Tensor rows = at::empty({outputs, inputs}, onGpu(at::kBFloat16));
    rows.normal_(0, 1 / std::sqrt(static_cast<double>(inputs)));
    return rows;
  };
  const at::Tensor ones = at::ones({hidden}, onGpu(at::kFloat));
  CudaWeights weights;
  weights.embeddings = matrix(config.vocab_size, hidden);
  for (int64_t l = 0; l < config.layers; ++l) {
    weights.layers.push_back({.attention_norm = ones,
                              .qkv = matrix((config.heads + 2 * config.kv_heads) * d, hidden).t(),
                              .output = matrix(hidden, config.heads * d).t(),
                              .mlp_norm = ones,
                              .gate_up = matrix(2 * config.intermediate_size, hidden).t(),
                              .down = matrix(hidden, config.intermediate_size).t()});
    if (config.qk_norm) {
      const at::Tensor norm = at::ones({d}, onGpu(at::kFloat));
      weights.layers.back().query_norm = weights.layers.back().key_norm = norm;
    }
    if (!config.qkv_bias) continue;
    at::Tensor& bias = weights.layers.back().qkv_bias;
    bias = at::empty({(config.heads + 2 * config.kv_heads) * d}, onGpu(at::kFloat)).normal_(0, 0.1);
  }
  weights.final_norm = ones;
  weights.head =
      config.tied_embeddings ? weights.embeddings.t() : matrix(config.vocab_size, hidden).t();
  return weights;
}

size_t CudaWeights::bytes() const {
  size_t sum = embeddings.nbytes() + final_norm.nbytes();
  if (head.data_ptr() != embeddings.data_ptr()) sum += head.nbytes();
  for (const CudaLayer& layer : layers) {
    for (const at::Tensor* tensor : {&layer.attention_norm, &layer.qkv, &layer.output,
                                     &layer.mlp_norm, &layer.gate_up, &layer.down}) {
      sum += tensor->nbytes();
    }
    for (const at::Tensor* tensor : {&layer.qkv_bias, &layer.query_norm, &layer.key_norm}) {
      if (tensor->defined()) sum += tensor->nbytes();
    }
  }
  return sum;
}

cuda_ops::Number CudaWeights::number() const {
  return embeddings.scalar_type() == at::kFloat ? cuda_ops::Number::kFloat32
                                                : cuda_ops::Number::kBFloat16;
}

CudaModel::CudaModel(const ModelConfig& config, CudaWeights weights, c10::cuda::CUDAStream stream)
    : config_(config),
      weights_(std::move(weights)),
      number_(weights_.number()),
      stream_(stream),
      refused_copy_(std::make_shared<std::optional<std::string>>()) {}

Result<std::unique_ptr<CudaModel>> CudaModel::create(const ModelConfig& config, CudaWeights weights,
                                                     const KvPoolOptions& options) {
  const c10::InferenceMode guard;
  prepareProcess();
  // A separate stream: the default one can neither be captured nor run beside another.
  std::unique_ptr<CudaModel> model(
      new CudaModel(config, std::move(weights), c10::cuda::getStreamFromPool()));
  if (options.zero_reads == ZeroReads::kWindow) {
    return badInput(
        "heads without a budget attend to a window on the CPU alone: set spec.model.device to cpu, "
        "or let them give nothing or the mean of their values");
  }
  KvPoolOptions kept = options;
  kept.element = kernels::Element::kBFloat16;
  ALLOT_ASSIGN(
      model->pool_,
      KvPool::create(config, kept, cudaPlace(model->stream_.stream(), model->refused_copy_)));
  // Reports shapes that the kernels do not support here, not at the first prompt.
  if (const auto why = model->planPrompt(1)) return badInput(*why);
  // Uploads and clears above were on the default stream.
  cudaDeviceSynchronize();
  return model;
}

void CudaModel::coverPositions(int64_t positions) {
  rope_.cover(config_, positions);
  const int64_t half = config_.head_dim / 2;
  const auto made = static_cast<int64_t>(rope_.cosines.size()) / half;
  if (cosines_.defined() && cosines_.size(0) == made) return;
  // Both tables or neither are replaced: if memory runs out, the next call uploads both again.
  at::Tensor cosines = upload(rope_.cosines, {made, half});
  at::Tensor sines = upload(rope_.sines, {made, half});
  // Uploaded on the current stream.
  cudaDeviceSynchronize();
  cosines_ = std::move(cosines);
  sines_ = std::move(sines);
  ++moves_;
}

std::optional<std::string> CudaModel::plan(const kernels::MethodOptions& method,
                                           const kernels::cuda::StepBounds& bounds) {
  if (!workspace_.plan(method, pool_.layer(0), bounds)) return {};
  graphs_.clear();
  c10::cuda::CUDACachingAllocator::emptyCache();
  return workspace_.plan(method, pool_.layer(0), bounds);
}

std::optional<std::string> CudaModel::failure() {
  auto why = workspace_.failure(stream_.stream());
  // Always read: an error that stays would be reported for the next step.
  if (only_layer_) {
    auto dense = dense_workspace_.failure(stream_.stream());
    if (!why) why = std::move(dense);
  }
  return why;
}

std::optional<std::string> CudaModel::planPrompt(int positions) {
  const c10::InferenceMode guard;
  if (*refused_copy_) return *refused_copy_;
  coverPositions(positions);
  return plan({}, {.rows = 1,
                   .heads = static_cast<int>(config_.heads),
                   .max_length = (positions + kPlannedKeys - 1) / kPlannedKeys * kPlannedKeys,
                   .max_budget = 0,
                   .statistics = false});
}

std::optional<std::string> CudaModel::prepare(const StepBatch& batch, bool statistics,
                                              std::span<const uint32_t> places) {
  const c10::InferenceMode guard;
  if (*refused_copy_) return *refused_copy_;
  rows_ = static_cast<int>(batch.tokens.size());
  method_ = batch.method;
  only_layer_ = batch.only_layer;
  seed_ = batch.seed;
  with_statistics_ = statistics;
  budgets_a_row_ = layerBudgets(batch.schedules, config_, 0, &budgets_) ? config_.heads : 1;
  int longest = 1;
  uint32_t most = 1;
  for (int r = 0; r < rows_; ++r) {
    longest = std::max(longest, batch.lengths[r]);
    for (const uint32_t budget : batch.schedules[static_cast<size_t>(r)]) {
      const bool draws =
          budget < static_cast<uint32_t>(batch.lengths[r]) || !kernels::exactFromAllKeys(method_);
      if (draws) most = std::max(most, std::min(budget, kTooManyDraws));
    }
  }
  const auto group = static_cast<uint32_t>(config_.heads / config_.kv_heads);
  const uint32_t allowed = kTooManyDraws / 2 / (method_.group_draws ? group : 1);
  bounds_ = {.rows = rows_,
             .heads = static_cast<int>(config_.heads),
             .max_length = (longest + kPlannedKeys - 1) / kPlannedKeys * kPlannedKeys,
             .max_budget = std::max(most, std::min(std::bit_ceil(most), allowed)),
             .statistics = statistics};
  // The page table's rows grow in steps like the plan, so that nameOfStep() changes rarely.
  const int step = std::max(1, kPlannedKeys / pool_.pageSize());
  max_pages_ =
      std::max((batch.max_pages + step - 1) / step * step, bounds_.max_length / pool_.pageSize());
  if (auto why = plan(method_, bounds_)) return why;
  if (only_layer_ && dense_workspace_.plan({}, pool_.layer(0), bounds_)) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    if (auto why = dense_workspace_.plan({}, pool_.layer(0), bounds_)) return why;
  }
  resize(rows_);
  coverPositions(longest);
  fill(batch, places);
  return {};
}

void CudaModel::fill(const StepBatch& batch, std::span<const uint32_t> places) {
  const int64_t entries = offset(kPages) + static_cast<int64_t>(rows_) * max_pages_;
  if (!arrays_.defined() || arrays_.numel() < entries) {
    // Replaces both arrays or neither, if memory runs out.
    at::Tensor arrays = at::empty({2 * entries}, onGpu(at::kInt));
    host_arrays_ = pinned(2 * entries, at::kInt);
    arrays_ = std::move(arrays);
    ++moves_;
  }
  int32_t* start = host_arrays_.data_ptr<int32_t>();
  const auto put = [&](Array array, const auto& values) {
    std::memcpy(start + offset(array), values.data(), values.size() * sizeof(int32_t));
  };
  put(kTokens, batch.tokens);
  put(kLengths, batch.lengths);
  put(kSequences, batch.sequences);
  put(kSteps, batch.steps);
  if (!places.empty()) put(kPlaces, places);
  for (int r = 0; r < rows_; ++r) {
    start[offset(kPositions) + r] = batch.lengths[r] - 1;
  }
  for (int64_t l = 0; l < config_.layers; ++l) {
    layerBudgets(batch.schedules, config_, l, &budgets_);
    if (!hasMethod(l)) std::fill(budgets_.begin(), budgets_.end(), UINT32_MAX);
    std::memcpy(start + offset(kBudgets) + l * rows_ * budgets_a_row_, budgets_.data(),
                budgets_.size() * sizeof(uint32_t));
  }
  for (int r = 0; r < rows_; ++r) {
    int32_t* pages = start + offset(kPages) + static_cast<int64_t>(r) * max_pages_;
    std::copy_n(batch.page_table.begin() + static_cast<std::ptrdiff_t>(r) * batch.max_pages,
                batch.max_pages, pages);
    // There are no pages beyond the batch's; the kernels report a row that is too long.
    std::fill(pages + batch.max_pages, pages + max_pages_, -1);
  }
}

void CudaModel::resize(int64_t rows) {
  const int64_t whole = wholeTiles(rows);
  if (x_.defined() && x_.size(0) >= whole) return;
  const int64_t d = config_.head_dim, q = config_.heads * d, kv = config_.kv_heads * d;
  const auto make = [&](int64_t width, at::ScalarType type) {
    return at::zeros({whole, width}, onGpu(type));
  };
  const at::ScalarType number = weights_.embeddings.scalar_type();
  // Before the resize: if memory runs out, some arrays have already moved.
  ++moves_;
  normed_ = make(config_.hidden_size, number);
  qkv_ = make(q + 2 * kv, number);
  queries_ = make(q, at::kFloat);
  keys_ = make(kv, at::kFloat);
  values_ = make(kv, at::kFloat);
  if (pool_.layer(0).value_sums) zero_budget_values_ = make(kv, at::kFloat);
  attended_ = make(q, at::kFloat);
  attended_number_ = number == at::kFloat ? attended_ : make(q, number);
  projected_ = make(config_.hidden_size, number);
  gate_up_ = make(2 * config_.intermediate_size, number);
  gated_ = make(config_.intermediate_size, number);
  // Not rounded: a token is chosen by them.
  logits_ = make(config_.vocab_size, at::kFloat);
  statistics_ = make(static_cast<int64_t>(sizeof(kernels::RowStatistics)), at::kByte);
  host_statistics_ = pinned(statistics_.numel(), at::kByte);
  tokens_ = make(1, at::kInt);
  host_tokens_ = pinned(whole, at::kInt);
  // Last: if memory runs out before, the next call allocates all of them again.
  x_ = make(config_.hidden_size, at::kFloat);
  // They are allocated on the current stream.
  cudaDeviceSynchronize();
}

int64_t CudaModel::offset(Array array) const {
  // All arrays have an entry a row, except budgets: one a layer, or one a head of it.
  int64_t before = array;
  if (array == kPages) before += config_.layers * budgets_a_row_ - 1;
  return before * rows_;
}

template <typename T>
T* CudaModel::onDevice(Array array) const {
  return reinterpret_cast<T*>(arrays_.data_ptr<int32_t>() + offset(array));
}

const kernels::RowStatistics* CudaModel::statistics() const {
  return reinterpret_cast<const kernels::RowStatistics*>(host_statistics_.data_ptr<uint8_t>());
}

const int32_t* CudaModel::tokens() const { return host_tokens_.data_ptr<int32_t>(); }

std::optional<std::string> CudaModel::product(const at::Tensor& in, int64_t rows,
                                              const at::Tensor& matrix, at::Tensor* out) {
  const auto number = [](const at::Tensor& of) {
    return of.scalar_type() == at::kFloat ? cuda_ops::Number::kFloat32
                                          : cuda_ops::Number::kBFloat16;
  };
  return products_.multiply(
      number(in), in.data_ptr(), rows,
      {matrix.data_ptr(), matrix.size(0), matrix.size(1), matrix.stride(0) == 1}, number(*out),
      out->data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
}

void CudaModel::multiply(const at::Tensor& in, const at::Tensor& matrix, at::Tensor* out) {
  if (!refused_product_) refused_product_ = product(in, wholeTiles(rows_), matrix, out);
}

std::optional<std::string> CudaModel::logitsOf(const at::Tensor& normed, at::Tensor* logits) {
  const int64_t rows = wholeTiles(1);
  const at::Tensor in = at::zeros({rows, normed.size(1)}, normed.options());
  in.slice(0, 0, 1).copy_(normed);
  at::Tensor out = at::empty({rows, config_.vocab_size}, onGpu(at::kFloat));
  auto refusal = product(in, rows, weights_.head, &out);
  *logits = out.select(0, 0);
  return refusal;
}

std::optional<std::string> CudaModel::attend(int64_t layer) {
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  const kernels::PagedKv kv = pool_.layer(layer);
  if (auto why = kernels::cuda::appendKv(kv,
                                         {.keys = keys_.data_ptr<float>(),
                                          .values = values_.data_ptr<float>(),
                                          .page_table = onDevice<int32_t>(kPages),
                                          .starts = onDevice<int32_t>(kPositions),
                                          .rows = rows_,
                                          .count = 1,
                                          .max_pages = max_pages_},
                                         &workspace_, stream)) {
    return why;
  }
  const float* means = nullptr;
  if (kv.value_sums) {
    means = zero_budget_values_.data_ptr<float>();
    if (auto why = kernels::cuda::meanValues(kv,
                                             {.page_table = onDevice<int32_t>(kPages),
                                              .lengths = onDevice<int32_t>(kLengths),
                                              .rows = rows_,
                                              .max_pages = max_pages_},
                                             zero_budget_values_.data_ptr<float>(), stream)) {
      return why;
    }
  }
  kernels::DecodeOutputs out{.out = attended_.data_ptr<float>()};
  if (number_ == cuda_ops::Number::kBFloat16) out.rounded = attended_number_.data_ptr();
  if (with_statistics_) {
    out.statistics = reinterpret_cast<kernels::RowStatistics*>(statistics_.data_ptr<uint8_t>());
  }
  const bool has_method = hasMethod(layer);
  return kernels::cuda::decodeAttention(
      has_method ? method_ : kernels::MethodOptions{}, kv,
      {.queries = queries_.data_ptr<float>(),
       .page_table = onDevice<int32_t>(kPages),
       .lengths = onDevice<int32_t>(kLengths),
       .budgets = onDevice<uint32_t>(kBudgets) + layer * rows_ * budgets_a_row_,
       .sequences = onDevice<uint32_t>(kSequences),
       .steps = onDevice<uint32_t>(kSteps),
       .rows = rows_,
       .heads = static_cast<int>(config_.heads),
       .max_pages = max_pages_,
       .layer = static_cast<uint32_t>(layer),
       .seed = seed_,
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
       .window = static_cast<int>(config_.sliding_window),
       .head_budgets = budgets_a_row_ > 1,
       .zero_budget_values = means},
      has_method ? &workspace_ : &dense_workspace_, out, stream);
}

std::optional<std::string> CudaModel::enqueue(bool attention) {
  const c10::InferenceMode guard;
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  const int hidden = static_cast<int>(config_.hidden_size);
  const cuda_ops::Heads heads{static_cast<int>(config_.heads), static_cast<int>(config_.kv_heads),
                              static_cast<int>(config_.head_dim)};
  const int64_t entries = offset(kPages) + static_cast<int64_t>(rows_) * max_pages_;
  cudaMemcpyAsync(arrays_.data_ptr(), host_arrays_.data_ptr(),
                  static_cast<size_t>(entries) * sizeof(int32_t), cudaMemcpyHostToDevice, stream);
  if (with_statistics_) {
    cudaMemsetAsync(statistics_.data_ptr(), 0,
                    static_cast<size_t>(rows_) * sizeof(kernels::RowStatistics), stream);
  }
  cuda_ops::embed(number_, weights_.embeddings.data_ptr(), onDevice<int32_t>(kTokens), rows_,
                  hidden, x_.data_ptr<float>(), stream);
  // Adds the output of the previous attention or MLP to x, if `add`, and writes the norm of x for
  // the next.
  const auto addAndNorm = [&](bool add, const at::Tensor& weight) {
    cuda_ops::addRmsNorm(number_, x_.data_ptr<float>(), add ? projected_.data_ptr() : nullptr,
                         weight.data_ptr<float>(), rows_, hidden, config_.rms_norm_eps,
                         normed_.data_ptr(), stream);
  };
  for (int64_t l = 0; l < config_.layers; ++l) {
    const CudaLayer& w = weights_.layers[static_cast<size_t>(l)];
    addAndNorm(l > 0, w.attention_norm);
    multiply(normed_, w.qkv, &qkv_);
    const bool rotates = config_.rotates(l);
    cuda_ops::splitRope(
        number_, qkv_.data_ptr(), w.bias(), w.norms(config_.rms_norm_eps),
        onDevice<int32_t>(kPositions), rotates ? cosines_.data_ptr<float>() : nullptr,
        rotates ? sines_.data_ptr<float>() : nullptr, rows_, heads,
        {queries_.data_ptr<float>(), keys_.data_ptr<float>(), values_.data_ptr<float>()}, stream);
    if (attention) {
      auto why = attend(l);
      if (!why && after_attention) why = after_attention(l);
      if (why) return "layer " + std::to_string(l) + ": " + *why;
    }
    multiply(attended_number_, w.output, &projected_);
    addAndNorm(true, w.mlp_norm);
    multiply(normed_, w.gate_up, &gate_up_);
    cuda_ops::gatedSilu(number_, gate_up_.data_ptr(), rows_,
                        static_cast<int>(config_.intermediate_size), gated_.data_ptr(), stream);
    multiply(gated_, w.down, &projected_);
  }
  addAndNorm(true, weights_.final_norm);
  multiply(normed_, weights_.head, &logits_);
  if (with_statistics_) {
    cudaMemcpyAsync(host_statistics_.data_ptr(), statistics_.data_ptr(),
                    static_cast<size_t>(rows_) * sizeof(kernels::RowStatistics),
                    cudaMemcpyDeviceToHost, stream);
  }
  if (auto refusal = std::exchange(refused_product_, std::nullopt)) return refusal;
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return std::string(cudaGetErrorString(error));
  return {};
}

std::string CudaModel::nameOfStep(const TokenChoice& choice) const {
  const auto bits = [](double x) { return std::to_string(std::bit_cast<uint64_t>(x)); };
  std::string name = kernels::methodText(method_);
  for (const uint64_t number :
       {seed_, static_cast<uint64_t>(rows_), static_cast<uint64_t>(max_pages_),
        static_cast<uint64_t>(bounds_.max_length), uint64_t{bounds_.max_budget},
        static_cast<uint64_t>(budgets_a_row_), uint64_t{with_statistics_},
        static_cast<uint64_t>(choice.top_k)}) {
    name += " " + std::to_string(number);
  }
  return name + " " + bits(choice.temperature) + " " + bits(choice.top_p);
}

std::optional<std::string> CudaModel::enqueueAndChoose(const TokenChoice& choice) {
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  const auto all = [&]() -> std::optional<std::string> {
    if (auto why = enqueue()) return why;
    cuda_ops::chooseTokens(cuda_ops::Number::kFloat32, logits_.data_ptr(), rows_,
                           static_cast<int>(config_.vocab_size), choice, seed_,
                           onDevice<uint32_t>(kSequences), onDevice<uint32_t>(kPlaces),
                           tokens_.data_ptr<int32_t>(), stream);
    cudaMemcpyAsync(host_tokens_.data_ptr(), tokens_.data_ptr(),
                    static_cast<size_t>(rows_) * sizeof(int32_t), cudaMemcpyDeviceToHost, stream);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return std::string(cudaGetErrorString(error));
    return {};
  };
  if (after_attention || only_layer_) return all();
  return graphs_.run(nameOfStep(choice), moves_ + workspace_.moves(), stream, all);
}

}  // namespace allot
