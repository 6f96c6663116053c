// The decoder on a GPU. LibTorch does a prompt's products, CudaPrompt its attention, CudaModel the
// decode steps.

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "worker/model/cuda_device.h"
#include "worker/model/cuda_model.h"
#include "worker/model/cuda_probe.h"
#include "worker/model/cuda_prompt.h"
#include "worker/model/decoder_backend.h"
#include "worker/model/generation.h"
#include "worker/model/model_config.h"
#include "worker/model/stopwatch.h"

namespace allot {
namespace {

// Most queries in a piece. The score matrix stays small, and keys after a piece, which causality
// masks anyway, cost nothing.
constexpr int64_t kQueryPiece = 256;
// Most numbers of the matrix heads x queries x keys: 512 MiB. A few of them exist at once.
constexpr int64_t kMostScores = int64_t{1} << 27;

// Returns how many queries of a prompt have their scores in memory at once. It depends only on the
// prompt's length and not on free memory: other chunks would give sums other last bits.
int64_t queriesAtOnce(const ModelConfig& config, int64_t positions) {
  const int64_t window = config.sliding_window;
  const int64_t keys = window > 0 ? std::min(positions, window + kQueryPiece) : positions;
  int64_t queries = kQueryPiece;
  while (queries > 1 && queries * config.heads * keys > kMostScores) queries /= 2;
  return queries;
}

// Computes the causal attention of a dense prefill in float32, within the model's sliding window,
// for queries from `first` on. q: [n, heads, d], k and v: [n, kv_heads, d]. Returns [n - first,
// heads * d].
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

// Converts LibTorch's exceptions about the GPU into errors.
template <typename Function>
auto guarded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const c10::OutOfMemoryError&) {
    return badInput(
        "the GPU's memory is full: lower --kv-memory, or have fewer workers share the GPU");
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    return fail(ErrorCode::kInternal, "the GPU: " + what.substr(0, what.find('\n')));
  }
}

template <typename T>
at::Tensor uploaded(const std::vector<T>& values) {
  static_assert(sizeof(T) == sizeof(int32_t));
  return at::from_blob(const_cast<T*>(values.data()), {static_cast<int64_t>(values.size())},
                       at::kInt)
      .to(at::kCUDA);
}

// Uninitialised, [rows, width].
at::Tensor activations(int64_t rows, int64_t width, at::ScalarType type = at::kFloat) {
  return at::empty({rows, width}, at::TensorOptions().device(at::kCUDA).dtype(type));
}

// Positions at a time for the widest activations of a prompt.
constexpr int64_t kMlpRows = 4096;

class CudaBackend final : public DecoderBackend {
 public:
  explicit CudaBackend(std::unique_ptr<CudaModel> model)
      : model_(std::move(model)),
        prompt_(model_.get()),
        probe_(model_.get()),
        name_(cudaDeviceName()) {}

  std::string deviceName() const override { return name_; }
  size_t weightBytes() const override { return model_->weights().bytes(); }
  KvPool& pool() override { return model_->pool(); }

  Result<std::vector<float>> prefill(const std::vector<int32_t>& ids,
                                     const std::vector<int32_t>& pages,
                                     const PromptReading& reading,
                                     PromptStatistics* statistics) override {
    if (const auto why = kernels::gpuUnsupported(reading.method, kernels::Phase::kPrefill)) {
      return badInput(*why);
    }
    return guarded([&]() -> Result<std::vector<float>> {
      const c10::InferenceMode guard;
      const c10::cuda::CUDAStreamGuard on(model_->stream());
      try {
        return prefillOnStream(ids, pages, reading, statistics);
      } catch (const c10::OutOfMemoryError&) {
        return noRoomForPrompt(ids.size(), "the GPU's memory");
      }
    });
  }

  Result<std::span<const float>> step(const StepBatch& batch,
                                      std::vector<kernels::RowStatistics>* statistics) override {
    const Stopwatch watch(&times.gpu_steps);
    return guarded([&]() -> Result<std::span<const float>> {
      const c10::InferenceMode guard;
      const c10::cuda::CUDAStreamGuard on(model_->stream());
      return stepOnStream(batch, statistics);
    });
  }

  Result<std::span<const int32_t>> stepAndChoose(
      const StepBatch& batch, const TokenChoice& choice, const std::vector<uint32_t>& places,
      std::vector<kernels::RowStatistics>* statistics) override {
    const Stopwatch watch(&times.gpu_steps);
    return guarded([&]() -> Result<std::span<const int32_t>> {
      const c10::InferenceMode guard;
      const c10::cuda::CUDAStreamGuard on(model_->stream());
      return chooseOnStream(batch, choice, places, statistics);
    });
  }

  // Called by a probe, inside a step: LibTorch's exceptions propagate to the step.
  std::optional<std::string> attendAgain(const kernels::MethodOptions& method,
                                         const kernels::PagedKv& kv,
                                         const kernels::DecodeInputs& in,
                                         const kernels::DecodeOutputs& out) override {
    return probe_.attendAgain(method, kv, in, out);
  }
  std::optional<std::string> tileSums(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                      uint32_t tile,
                                      std::vector<std::vector<double>>* masses) override {
    return probe_.tileSums(kv, in, tile, masses);
  }
  std::optional<std::string> rowOnHost(const kernels::PagedKv& kv, const kernels::DecodeInputs& in,
                                       int row, HostRow* held) override {
    return probe_.rowOnHost(kv, in, row, held);
  }

 private:
  static tl::unexpected<Error> refused(const std::string& during, const std::string& why) {
    return fail(ErrorCode::kData, during + ": " + why);
  }

  // Waits for the stream. Returns nothing if all its work succeeded.
  Status waited(const std::string& during) {
    if (const auto why = model_->failure()) {
      return refused(during, *why);
    }
    cudaError_t error = cudaStreamSynchronize(model_->stream().stream());
    if (error == cudaSuccess) error = cudaGetLastError();  // of a kernel that failed to launch
    if (error == cudaSuccess) return {};
    return fail(ErrorCode::kInternal, during + ": the GPU: " + cudaGetErrorString(error));
  }

  Result<std::vector<float>> prefillOnStream(const std::vector<int32_t>& ids,
                                             const std::vector<int32_t>& pages,
                                             const PromptReading& reading,
                                             PromptStatistics* statistics);
  // Splits and rotates qkv, and writes keys and values to the cache.
  struct Attended {
    at::Tensor queries, keys, values;  // [n, heads or kv_heads, head_dim]
  };
  Result<Attended> storePrompt(at::Tensor qkv, at::ScalarType query_type, const at::Tensor& pages,
                               int64_t start, int64_t layer);
  // Computes dense causal attention with LibTorch. Returns the outputs from position `first` on,
  // [n - first, heads * head_dim], in the weights' type.
  // Requires: `first` is 0 or n - 1.
  at::Tensor attendPrompt(Attended made, int64_t first) const;
  // Computes x += more, [n, hidden]. Returns the output of the MLP for x.
  at::Tensor mlp(const CudaLayer& layer, const at::Tensor& x, const at::Tensor& more) const;
  // Computes x += more (undefined: nothing). Returns the RMS norm of x, in the weights' type.
  at::Tensor normalised(const at::Tensor& x, const at::Tensor& more,
                        const at::Tensor& weight) const;
  Result<std::span<const float>> stepOnStream(const StepBatch& batch,
                                              std::vector<kernels::RowStatistics>* statistics);
  Result<std::span<const int32_t>> chooseOnStream(const StepBatch& batch, const TokenChoice& choice,
                                                  const std::vector<uint32_t>& places,
                                                  std::vector<kernels::RowStatistics>* statistics);
  // Calls step(part, first row) for the batch. If its rows exceed the GPU's memory, calls it for
  // one part after another: rows are independent.
  template <typename Step>
  Status inParts(const StepBatch& batch, const Step& step);
  // Copies the arrays of a step and makes room for it. Sets no_room_ if that fails.
  Status prepared(const StepBatch& batch, bool statistics, std::span<const uint32_t> places);
  // Returns the error of an enqueued step, once the stream is empty.
  Status begun(const std::optional<std::string>& why);
  // Waits for the step and adds its statistics to the rows from `first` on.
  Status finish(size_t first, size_t rows, std::vector<kernels::RowStatistics>* statistics);

  const std::unique_ptr<CudaModel> model_;
  CudaPrompt prompt_;
  CudaProbe probe_;
  const std::string name_;
  at::Tensor host_logits_;  // pinned
  std::vector<int32_t> chosen_;
  size_t most_rows_ = SIZE_MAX;  // of a step: more exceeded the memory
  bool no_room_ = false;         // for the last part
};

// Returns the batch of rows first .. first + count - 1, with the same method, layer and seed.
StepBatch sliceRows(const StepBatch& batch, size_t first, size_t count) {
  StepBatch part = batch;
  const auto cut = [&](auto* list, size_t width) {
    const auto begin = list->begin() + static_cast<std::ptrdiff_t>(first * width);
    *list = {begin, begin + static_cast<std::ptrdiff_t>(count * width)};
  };
  cut(&part.tokens, 1);
  cut(&part.lengths, 1);
  cut(&part.sequences, 1);
  cut(&part.steps, 1);
  cut(&part.schedules, 1);
  cut(&part.page_table, static_cast<size_t>(batch.max_pages));
  return part;
}

Result<CudaBackend::Attended> CudaBackend::storePrompt(at::Tensor qkv, at::ScalarType query_type,
                                                       const at::Tensor& pages, int64_t start,
                                                       int64_t layer) {
  const ModelConfig& config = model_->config();
  const int64_t n = qkv.size(0), d = config.head_dim;
  const auto stream = model_->stream().stream();
  const Attended made{activations(n, config.heads * d, query_type).view({n, config.heads, d}),
                      activations(n, config.kv_heads * d).view({n, config.kv_heads, d}),
                      activations(n, config.kv_heads * d).view({n, config.kv_heads, d})};
  const CudaLayer& w = model_->weights().layers[static_cast<size_t>(layer)];
  const auto angles = [&](const at::Tensor& table) {
    return config.rotates(layer) ? table.data_ptr<float>() + start * d / 2 : nullptr;
  };
  cuda_ops::splitRope(
      model_->weights().number(), qkv.data_ptr(), w.bias(), w.norms(config.rms_norm_eps), nullptr,
      angles(model_->cosines()), angles(model_->sines()), static_cast<int>(n),
      {static_cast<int>(config.heads), static_cast<int>(config.kv_heads), static_cast<int>(d)},
      {.queries = query_type == at::kFloat ? made.queries.data_ptr<float>() : nullptr,
       .keys = made.keys.data_ptr<float>(),
       .values = made.values.data_ptr<float>(),
       .rounded_queries = query_type == at::kFloat ? nullptr : made.queries.data_ptr()},
      stream);
  qkv.reset();
  const std::string during = "prefill, layer " + std::to_string(layer);
  const at::Tensor first = uploaded(std::vector<int32_t>{static_cast<int32_t>(start)});
  if (const auto why = kernels::cuda::appendKv(model_->pool().layer(layer),
                                               {.keys = made.keys.data_ptr<float>(),
                                                .values = made.values.data_ptr<float>(),
                                                .page_table = pages.data_ptr<int32_t>(),
                                                .starts = first.data_ptr<int32_t>(),
                                                .rows = 1,
                                                .count = static_cast<int>(n),
                                                .max_pages = static_cast<int>(pages.numel())},
                                               &model_->workspace(), stream)) {
    return refused(during, *why);
  }
  // Prompts are read once: waiting for each layer costs little, and errors can name the layer.
  ALLOT_TRY(waited(during));
  return made;
}

at::Tensor CudaBackend::attendPrompt(Attended made, int64_t first) const {
  const ModelConfig& config = model_->config();
  const int64_t n = made.queries.size(0);
  const at::ScalarType type = model_->weights().embeddings.scalar_type();
  const bool windowed = config.sliding_window > 0 && n > config.sliding_window;
  if (type == at::kFloat || windowed) {
    return causalAttention(config, made.queries, made.keys, made.values, first).to(type);
  }
  // [1, heads, n, d], in place of what it is made from.
  const auto heads = [type](at::Tensor* x) {
    *x = x->to(type);
    return x->transpose(0, 1).unsqueeze(0);
  };
  made.queries = made.queries.slice(0, first);
  const at::Tensor queries = heads(&made.queries);
  const at::Tensor keys = heads(&made.keys), values = heads(&made.values);
  // LibTorch's flash attention, which never has the scores in memory at once.
  const at::Tensor out = at::scaled_dot_product_attention(
      queries, keys, values, {}, 0.0, /*is_causal=*/first == 0, {}, /*enable_gqa=*/true);
  return out.squeeze(0).transpose(0, 1).reshape({n - first, config.heads * config.head_dim});
}

at::Tensor CudaBackend::normalised(const at::Tensor& x, const at::Tensor& more,
                                   const at::Tensor& weight) const {
  const int64_t rows = x.size(0), hidden = x.size(1);
  at::Tensor out = activations(rows, hidden, model_->weights().embeddings.scalar_type());
  cuda_ops::addRmsNorm(model_->weights().number(), x.data_ptr<float>(),
                       more.defined() ? more.data_ptr() : nullptr, weight.data_ptr<float>(),
                       static_cast<int>(rows), static_cast<int>(hidden),
                       model_->config().rms_norm_eps, out.data_ptr(), model_->stream().stream());
  return out;
}

at::Tensor CudaBackend::mlp(const CudaLayer& layer, const at::Tensor& x,
                            const at::Tensor& more) const {
  const int64_t n = x.size(0), width = model_->config().intermediate_size;
  std::vector<at::Tensor> pieces;
  for (int64_t i = 0; i < n; i += kMlpRows) {
    const int64_t end = std::min(i + kMlpRows, n);
    const at::Tensor in = normalised(x.slice(0, i, end), more.slice(0, i, end), layer.mlp_norm);
    const at::Tensor gate_up = at::mm(in, layer.gate_up);
    at::Tensor gated = activations(end - i, width, gate_up.scalar_type());
    cuda_ops::gatedSilu(model_->weights().number(), gate_up.data_ptr(), static_cast<int>(end - i),
                        static_cast<int>(width), gated.data_ptr(), model_->stream().stream());
    pieces.push_back(at::mm(gated, layer.down));
  }
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, 0);
}

// Reads a prompt as readPrompt() does on the CPU; one that LibTorch attends to is one chunk.
Result<std::vector<float>> CudaBackend::prefillOnStream(const std::vector<int32_t>& ids,
                                                        const std::vector<int32_t>& pages,
                                                        const PromptReading& reading,
                                                        PromptStatistics* statistics) {
  const ModelConfig& config = model_->config();
  const CudaWeights& weights = model_->weights();
  const auto stream = model_->stream().stream();
  const int64_t n = static_cast<int64_t>(ids.size()), hidden = config.hidden_size;
  const bool by_kernels = prompt_.reads(reading.method);
  if (const auto why = model_->planPrompt(static_cast<int>(n))) return refused("prefill", *why);
  if (by_kernels) ALLOT_TRY(prompt_.begin(reading, n, statistics));
  const at::Tensor tokens = uploaded(ids), page_table = uploaded(pages);
  at::Tensor x, more;
  const int64_t size = by_kernels ? prompt_.chunk() : n;
  const at::ScalarType query_type = by_kernels ? prompt_.queryType() : at::kFloat;
  for (int64_t start = 0; start < n; start += size) {
    const int64_t end = std::min(n, start + size);
    x = activations(end - start, hidden);
    more.reset();
    cuda_ops::embed(weights.number(), weights.embeddings.data_ptr(),
                    tokens.data_ptr<int32_t>() + start, static_cast<int>(end - start),
                    static_cast<int>(hidden), x.data_ptr<float>(), stream);
    for (int64_t l = 0; l < config.layers; ++l) {
      const CudaLayer& w = weights.layers[static_cast<size_t>(l)];
      // Tensors are freed before the next ones are made: this decides the longest possible prompt.
      at::Tensor qkv = at::mm(normalised(x, more, w.attention_norm), w.qkv);
      more.reset();
      ALLOT_ASSIGN(Attended made, storePrompt(std::move(qkv), query_type, page_table, start, l));
      // Only the last position of the last layer's output is used.
      const bool last = l + 1 == config.layers;
      if (last && end < n) break;
      const int64_t first = last ? end - 1 : start;
      x = x.slice(0, first - start);
      if (kernels::traitsOf(reading.method.method).prompts == kernels::Prompts::kAllKeys) {
        addDenseReads(config, first, end - first, &statistics->blocks);
      }
      if (by_kernels) {
        ALLOT_ASSIGN(const at::Tensor attended,
                     prompt_.attend(made.queries, page_table, start, first, l));
        more = at::mm(attended, w.output);
      } else {
        more = at::mm(attendPrompt(std::move(made), first), w.output);
      }
      more = mlp(w, x, more);
    }
  }
  if (by_kernels) ALLOT_TRY(prompt_.finish());
  at::Tensor logits;
  if (auto why = model_->logitsOf(normalised(x, more, weights.final_norm), &logits)) {
    return refused("prefill", *why);
  }
  logits = logits.cpu();
  const float* data = logits.data_ptr<float>();
  // The last layer's output is in no cache and was therefore not checked yet.
  if (!std::all_of(data, data + config.vocab_size, [](float x) { return std::isfinite(x); })) {
    return refused("prefill", "the logits are not finite");
  }
  return std::vector<float>(data, data + config.vocab_size);
}

void pinned(at::Tensor* host, int64_t count, at::ScalarType type) {
  if (host->defined() && host->numel() >= count) return;
  *host = at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(true));
}

template <typename Step>
Status CudaBackend::inParts(const StepBatch& batch, const Step& step) {
  const size_t rows = batch.tokens.size(), most = most_rows_;
  for (size_t first = 0; first < rows;) {
    // A probe needs the whole batch.
    const size_t count = batch.probe ? rows : std::min(most_rows_, rows - first);
    no_room_ = false;
    Status done;
    try {
      done = count == rows ? step(batch, 0) : step(sliceRows(batch, first, count), first);
    } catch (const c10::OutOfMemoryError&) {
      if (count == 1 || batch.probe) throw;
      (void)waited("decode");  // what was enqueued still reads the step's arrays
      no_room_ = true;
    }
    if (no_room_ && count > 1 && !batch.probe) {
      most_rows_ = (count + 1) / 2;
      continue;
    }
    // An error with a single row has another reason than memory.
    if (!done && count == 1) most_rows_ = most;
    ALLOT_TRY(done);
    first += count;
  }
  return {};
}

Status CudaBackend::begun(const std::optional<std::string>& why) {
  if (!why) return {};
  // What was enqueued still reads the step's arrays.
  (void)waited("decode");
  return refused("decode", *why);
}

Status CudaBackend::prepared(const StepBatch& batch, bool statistics,
                             std::span<const uint32_t> places) {
  model_->after_attention = nullptr;
  if (batch.probe) {
    model_->after_attention = [this, &batch](int64_t layer) { return probe_.call(batch, layer); };
  }
  const auto why = model_->prepare(batch, statistics, places);
  if (!why) return {};
  no_room_ = true;  // or the step has another error, which fewer rows will show
  return refused("decode", *why);
}

Status CudaBackend::finish(size_t first, size_t rows,
                           std::vector<kernels::RowStatistics>* statistics) {
  ALLOT_TRY(waited("decode"));
  if (!statistics) return {};
  for (size_t r = 0; r < rows; ++r) add(model_->statistics()[r], &(*statistics)[first + r]);
  return {};
}

Result<std::span<const float>> CudaBackend::stepOnStream(
    const StepBatch& batch, std::vector<kernels::RowStatistics>* statistics) {
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  const size_t numbers = batch.tokens.size() * vocab;
  pinned(&host_logits_, static_cast<int64_t>(numbers), at::kFloat);
  auto* const host = host_logits_.data_ptr<float>();
  ALLOT_TRY(inParts(batch, [&](const StepBatch& part, size_t first) -> Status {
    ALLOT_TRY(prepared(part, statistics != nullptr, {}));
    ALLOT_TRY(begun(model_->enqueue()));
    const size_t rows = part.tokens.size();
    cudaMemcpyAsync(host + first * vocab, model_->logits().data_ptr(), rows * vocab * sizeof(float),
                    cudaMemcpyDeviceToHost, model_->stream().stream());
    return finish(first, rows, statistics);
  }));
  return std::span<const float>(host, numbers);
}

Result<std::span<const int32_t>> CudaBackend::chooseOnStream(
    const StepBatch& batch, const TokenChoice& choice, const std::vector<uint32_t>& places,
    std::vector<kernels::RowStatistics>* statistics) {
  chosen_.resize(batch.tokens.size());
  ALLOT_TRY(inParts(batch, [&](const StepBatch& part, size_t first) -> Status {
    const size_t rows = part.tokens.size();
    ALLOT_TRY(prepared(part, statistics != nullptr, std::span(places).subspan(first, rows)));
    ALLOT_TRY(begun(model_->enqueueAndChoose(choice)));
    ALLOT_TRY(finish(first, rows, statistics));
    times.gpu_graphs = model_->graphsLaunched();
    std::copy_n(model_->tokens(), rows, chosen_.begin() + static_cast<std::ptrdiff_t>(first));
    return {};
  }));
  const std::span<const int32_t> chosen(chosen_);
  if (std::find(chosen.begin(), chosen.end(), -1) != chosen.end()) {
    return refused("decode", "the logits are not finite");
  }
  return chosen;
}

}  // namespace

Result<std::unique_ptr<DecoderBackend>> makeCudaBackend(const ModelConfig& config,
                                                        const std::string& path, WeightType type,
                                                        const KvPoolOptions& options,
                                                        Weights* read) {
  if (const auto why = cudaUnavailable()) return badInput(*why);
  if (const auto why = cudaUnsupported(config)) return badInput(*why);
  if (options.element == kernels::Element::kE4M3) {
    return badInput(
        "the GPU keeps keys and values in bfloat16: set spec.model.kvDtype to bfloat16");
  }
  const bool four = std::all_of(options.shadow_bits.begin(), options.shadow_bits.end(),
                                [](int bits) { return bits == 4; });
  if (!four) return badInput("the GPU keeps shadows of keys in 4 bits alone");
  return guarded([&]() -> Result<std::unique_ptr<DecoderBackend>> {
    ALLOT_ASSIGN(CudaWeights weights, CudaWeights::load(config, path, type, read));
    ALLOT_ASSIGN(auto model, CudaModel::create(config, std::move(weights), options));
    return std::unique_ptr<DecoderBackend>(std::make_unique<CudaBackend>(std::move(model)));
  });
}

}  // namespace allot
