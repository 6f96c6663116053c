// The decoder on a GPU: dense prefill through LibTorch, decode steps as CudaModel has them.

// First: List.h, which the others include, needs it whole.
#include <ATen/core/ivalue.h>

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/cuda_device.h"
#include "model/cuda_model.h"
#include "model/decoder_backend.h"
#include "model/generation.h"
#include "model/prefill_attention.h"
#include "model/stopwatch.h"

namespace allot {
namespace {

// LibTorch throws; what it throws about the GPU becomes an error here.
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

at::Tensor activations(int64_t rows, int64_t width) {
  return at::empty({rows, width}, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat));
}

class CudaBackend final : public DecoderBackend {
 public:
  explicit CudaBackend(std::unique_ptr<CudaModel> model)
      : model_(std::move(model)), name_(cudaDeviceName()) {}

  std::string deviceName() const override { return name_; }
  size_t weightBytes() const override { return model_->weights().bytes(); }
  KvPool& pool() override { return model_->pool(); }

  Result<std::vector<float>> prefill(const std::vector<int32_t>& ids,
                                     const std::vector<int32_t>& pages) override {
    return guarded([&]() -> Result<std::vector<float>> {
      const c10::InferenceMode guard;
      const c10::cuda::CUDAStreamGuard on(model_->stream());
      return prefillOnStream(ids, pages);
    });
  }

  Result<std::span<const float>> step(const StepBatch& batch,
                                      std::vector<kernels::RowStatistics>* statistics) override {
    if (batch.probe) {
      return badInput(
          "attention outputs are looked at on the CPU alone: set spec.model.device to cpu");
    }
    const Stopwatch watch(&times.gpu_steps);
    return guarded([&]() -> Result<std::span<const float>> {
      const c10::InferenceMode guard;
      const c10::cuda::CUDAStreamGuard on(model_->stream());
      return stepOnStream(batch, statistics);
    });
  }

 private:
  static tl::unexpected<Error> refused(const std::string& during, const std::string& why) {
    return fail(ErrorCode::kData, during + ": " + why);
  }

  // Waits for the stream. Nothing if what was put on it went well.
  Status waited(const std::string& during) {
    if (const auto why = model_->workspace().failure(model_->stream().stream())) {
      return refused(during, *why);
    }
    const cudaError_t error = cudaStreamSynchronize(model_->stream().stream());
    if (error == cudaSuccess) return {};
    return fail(ErrorCode::kInternal, during + ": the GPU: " + cudaGetErrorString(error));
  }

  Result<std::vector<float>> prefillOnStream(const std::vector<int32_t>& ids,
                                             const std::vector<int32_t>& pages);
  // Queries, keys and values of qkv; keys and values go into the cache.
  struct Attended {
    at::Tensor queries, keys, values;  // [n, heads, head_dim]
  };
  Result<Attended> storePrompt(const at::Tensor& qkv, const at::Tensor& pages,
                               const at::Tensor& start, int64_t layer);
  Result<std::span<const float>> stepOnStream(const StepBatch& batch,
                                              std::vector<kernels::RowStatistics>* statistics);

  const std::unique_ptr<CudaModel> model_;
  const std::string name_;
  at::Tensor host_logits_, host_statistics_;  // pinned
};

Result<CudaBackend::Attended> CudaBackend::storePrompt(const at::Tensor& qkv,
                                                       const at::Tensor& pages,
                                                       const at::Tensor& start, int64_t layer) {
  const ModelConfig& config = model_->config();
  const int64_t n = qkv.size(0), d = config.head_dim;
  const auto stream = model_->stream().stream();
  const Attended made{activations(n, config.heads * d).view({n, config.heads, d}),
                      activations(n, config.kv_heads * d).view({n, config.kv_heads, d}),
                      activations(n, config.kv_heads * d).view({n, config.kv_heads, d})};
  cuda_ops::splitRope(
      cuda_ops::Number::kFloat32, qkv.data_ptr(),
      model_->weights().layers[static_cast<size_t>(layer)].bias(), nullptr,
      model_->cosines().data_ptr<float>(), model_->sines().data_ptr<float>(), static_cast<int>(n),
      {static_cast<int>(config.heads), static_cast<int>(config.kv_heads), static_cast<int>(d)},
      {made.queries.data_ptr<float>(), made.keys.data_ptr<float>(), made.values.data_ptr<float>()},
      stream);
  const std::string during = "prefill, layer " + std::to_string(layer);
  if (const auto why = kernels::cuda::appendKv(model_->pool().layer(layer),
                                               {.keys = made.keys.data_ptr<float>(),
                                                .values = made.values.data_ptr<float>(),
                                                .page_table = pages.data_ptr<int32_t>(),
                                                .starts = start.data_ptr<int32_t>(),
                                                .rows = 1,
                                                .count = static_cast<int>(n),
                                                .max_pages = static_cast<int>(pages.numel())},
                                               &model_->workspace(), stream)) {
    return refused(during, *why);
  }
  // Prompts are read once: a wait for each layer costs little, and the sentence names it.
  ALLOT_TRY(waited(during));
  return made;
}

// As prefillDense() on the CPU, layer by layer.
Result<std::vector<float>> CudaBackend::prefillOnStream(const std::vector<int32_t>& ids,
                                                        const std::vector<int32_t>& pages) {
  const ModelConfig& config = model_->config();
  const CudaWeights& weights = model_->weights();
  const auto stream = model_->stream().stream();
  const int64_t n = static_cast<int64_t>(ids.size()), hidden = config.hidden_size;
  if (const auto why = model_->planPrompt(static_cast<int>(n))) return refused("prefill", *why);
  constexpr auto kNumber = cuda_ops::Number::kFloat32;
  const at::Tensor tokens = uploaded(ids), page_table = uploaded(pages);
  const at::Tensor start = uploaded(std::vector<int32_t>{0});
  at::Tensor x = activations(n, hidden), more;
  cuda_ops::embed(kNumber, weights.embeddings.data_ptr(), tokens.data_ptr<int32_t>(),
                  static_cast<int>(n), static_cast<int>(hidden), x.data_ptr<float>(), stream);
  const auto normalised = [&](const at::Tensor& weight) {
    at::Tensor out = activations(x.size(0), hidden);
    cuda_ops::addRmsNorm(kNumber, x.data_ptr<float>(), more.defined() ? more.data_ptr() : nullptr,
                         weight.data_ptr<float>(), static_cast<int>(x.size(0)),
                         static_cast<int>(hidden), config.rms_norm_eps, out.data_ptr(), stream);
    return out;
  };
  for (int64_t l = 0; l < config.layers; ++l) {
    const CudaLayer& w = weights.layers[static_cast<size_t>(l)];
    const at::Tensor qkv = at::mm(normalised(w.attention_norm), w.qkv);
    ALLOT_ASSIGN(const Attended made, storePrompt(qkv, page_table, start, l));
    // Nothing reads the last layer's output but at the last position.
    const int64_t first = l + 1 == config.layers ? n - 1 : 0;
    x = x.slice(0, first);
    more = at::mm(causalAttention(config, made.queries, made.keys, made.values, first), w.output);
    const at::Tensor gate_up = at::mm(normalised(w.mlp_norm), w.gate_up);
    const at::Tensor gated = activations(x.size(0), config.intermediate_size);
    cuda_ops::gatedSilu(kNumber, gate_up.data_ptr(), static_cast<int>(x.size(0)),
                        static_cast<int>(config.intermediate_size), gated.data_ptr(), stream);
    more = at::mm(gated, w.down);
  }
  const at::Tensor logits = at::mm(normalised(weights.final_norm), weights.head).cpu();
  const float* data = logits.data_ptr<float>();
  // What the last layer makes is not in any cache, where it would have been checked.
  if (!std::all_of(data, data + config.vocab_size, [](float x) { return std::isfinite(x); })) {
    return refused("prefill", "the logits are not finite");
  }
  return std::vector<float>(data, data + config.vocab_size);
}

Result<std::span<const float>> CudaBackend::stepOnStream(
    const StepBatch& batch, std::vector<kernels::RowStatistics>* statistics) {
  const auto stream = model_->stream().stream();
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const int64_t numbers = rows * model_->config().vocab_size;
  const auto bytes = static_cast<int64_t>(sizeof(kernels::RowStatistics));
  if (const auto why = model_->prepare(batch, statistics != nullptr))
    return refused("decode", *why);
  if (const auto why = model_->enqueue()) {
    // What was enqueued still reads the step's arrays.
    (void)waited("decode");
    return refused("decode", *why);
  }
  const auto pinned = [](at::Tensor* host, int64_t count, at::ScalarType type) {
    if (host->defined() && host->numel() >= count) return;
    *host = at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(true));
  };
  pinned(&host_logits_, numbers, at::kFloat);
  pinned(&host_statistics_, rows * bytes, at::kByte);
  cudaMemcpyAsync(host_logits_.data_ptr(), model_->logits().data_ptr(),
                  static_cast<size_t>(numbers) * sizeof(float), cudaMemcpyDeviceToHost, stream);
  if (statistics) {
    cudaMemcpyAsync(host_statistics_.data_ptr(), model_->statistics(),
                    static_cast<size_t>(rows * bytes), cudaMemcpyDeviceToHost, stream);
  }
  ALLOT_TRY(waited("decode"));
  if (statistics) {
    const auto* made = static_cast<const kernels::RowStatistics*>(host_statistics_.data_ptr());
    for (int64_t r = 0; r < rows; ++r) add(made[r], &(*statistics)[static_cast<size_t>(r)]);
  }
  return std::span<const float>(host_logits_.data_ptr<float>(), static_cast<size_t>(numbers));
}

}  // namespace

Result<std::unique_ptr<DecoderBackend>> makeCudaBackend(const ModelConfig& config,
                                                        const Weights& weights,
                                                        const KvPoolOptions& options) {
  if (const auto why = cudaUnavailable()) return badInput(*why);
  if (const auto why = cudaUnsupported(config)) return badInput(*why);
  const bool four = std::all_of(options.shadow_bits.begin(), options.shadow_bits.end(),
                                [](int bits) { return bits == 4; });
  if (!four || options.bounds) {
    return badInput("the GPU keeps shadows of keys in 4 bits and no bounds of keys");
  }
  return guarded([&]() -> Result<std::unique_ptr<DecoderBackend>> {
    ALLOT_ASSIGN(auto model,
                 CudaModel::create(config, CudaWeights::upload(config, weights), options));
    return std::unique_ptr<DecoderBackend>(std::make_unique<CudaBackend>(std::move(model)));
  });
}

}  // namespace allot
