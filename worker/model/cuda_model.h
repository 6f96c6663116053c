#pragma once
// CudaModel: a Llama-architecture model on a GPU, and how one decode step gets onto its stream.
//
// Owns weights, pool, the kernels' workspace and the activations of a step. LibTorch multiplies
// matrices, cuda_ops.h does what lies between, kernels/ the attention. Used by the decoder
// (cuda_backend.cpp) and by allot-bench. One thread. Private to these, like all that knows
// at::Tensor.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allot/kernels/cuda_decode.h"
#include "core/result.h"
#include "worker/model/compute_device.h"
#include "worker/model/cpu_prefill.h"
#include "worker/model/cuda_ops.h"
#include "worker/model/cuda_products.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/step_graphs.h"
#include "worker/model/token_choice.h"
#include "worker/model/weights.h"

namespace allot {

// Matrices are [inputs, outputs], transposed views of rows as they are stored; norms are float32.
struct CudaLayer {
  at::Tensor attention_norm, qkv, output, mlp_norm, gate_up, down;
  at::Tensor qkv_bias = {};                   // float32, undefined where there is none
  at::Tensor query_norm = {}, key_norm = {};  // [head_dim], as well

  const float* bias() const { return qkv_bias.defined() ? qkv_bias.data_ptr<float>() : nullptr; }
  cuda_ops::HeadNorms norms(float eps) const {
    if (!query_norm.defined()) return {};
    return {query_norm.data_ptr<float>(), key_norm.data_ptr<float>(), eps};
  }
};

struct CudaWeights {
  at::Tensor embeddings;  // [vocab, hidden]
  std::vector<CudaLayer> layers;
  at::Tensor final_norm;
  at::Tensor head;

  // Reads the checkpoint at `path`, layer by layer. In float32 a run on the GPU differs from one on
  // the CPU that has a bfloat16 cache by its sums alone, and small models do not wait for their
  // weights; large ones are for bfloat16. `read` is told parameters and digest.
  static Result<CudaWeights> load(const ModelConfig& config, const std::string& path,
                                  WeightType type, Weights* read);
  // bfloat16, normal, of a size that keeps activations near 1: for measuring time.
  static CudaWeights random(const ModelConfig& config, uint64_t seed);

  size_t bytes() const;
  cuda_ops::Number number() const;
};

class CudaModel {
 public:
  // Budgets count as no more than this: the plan refuses as many draws (exactAbove=never).
  static constexpr uint32_t kTooManyDraws = 1u << 25;

  // Keys and values are kept in bfloat16, whatever the options say: it is half of float32's bytes
  // and what the kernels read. kUsage where the GPU's memory is too small.
  static Result<std::unique_ptr<CudaModel>> create(const ModelConfig& config, CudaWeights weights,
                                                   const KvPoolOptions& options);

  const ModelConfig& config() const { return config_; }
  const CudaWeights& weights() const { return weights_; }
  const at::Tensor& cosines() const { return cosines_; }
  const at::Tensor& sines() const { return sines_; }
  KvPool& pool() { return pool_; }
  kernels::cuda::Workspace& workspace() { return workspace_; }
  // Workspace::failure() of the step's kernels.
  [[nodiscard]] std::optional<std::string> failure();
  // What everything runs on. Its callers make it the current one.
  c10::cuda::CUDAStream stream() const { return stream_; }

  // Room for keys of one sequence to be appended, `positions` in all. Refusals are sentences.
  [[nodiscard]] std::optional<std::string> planPrompt(int positions);

  // Takes a step's arrays over and makes room for it; the step before must be done. With the sizes
  // of the step before nothing moves in memory: a graph captured of that step then does this one.
  // places [rows]: where tokens are to be chosen, which (Decoder's).
  [[nodiscard]] std::optional<std::string> prepare(const StepBatch& batch, bool statistics,
                                                   std::span<const uint32_t> places = {});

  // Puts the prepared step on the current stream: one upload, kernels, and the statistics' way home
  // where there are any. Allocates nothing and waits for nothing, so that it can be captured.
  // Without attention: all the rest, for measuring.
  [[nodiscard]] std::optional<std::string> enqueue(bool attention = true);
  // Called by enqueue() after a layer's attention; such a step may wait, and is no graph. Nothing:
  // not called.
  std::function<std::optional<std::string>(int64_t layer)> after_attention;
  // The same and the choice of the next tokens, which needs places: as a graph, if there is one.
  [[nodiscard]] std::optional<std::string> enqueueAndChoose(const TokenChoice& choice);

  // On the device, [at least rows, vocab], float32.
  const at::Tensor& logits() const { return logits_; }
  // What a step makes of a row that the last norm gave: normed [1, hidden] of the weights' number,
  // logits [vocab] float32, on the device. On the current stream.
  [[nodiscard]] std::optional<std::string> logitsOf(const at::Tensor& normed, at::Tensor* logits);
  // Of the layer after whose attention it is asked: [at least rows, heads or KV heads * head_dim];
  // idleValues() is undefined where none are kept.
  const at::Tensor& queries() const { return queries_; }
  const at::Tensor& attended() const { return attended_; }
  const at::Tensor& idleValues() const { return zero_budget_values_; }
  // [rows], once the step is done: on the host.
  const kernels::RowStatistics* statistics() const;
  const int32_t* tokens() const;
  // Steps so far that were one call.
  uint64_t graphsLaunched() const { return graphs_.launched(); }

 private:
  // The step's arrays, one after another in one piece of memory, of 4 bytes an entry.
  enum Array { kTokens, kLengths, kPositions, kSequences, kSteps, kPlaces, kBudgets, kPages };

  CudaModel(const ModelConfig& config, CudaWeights weights, c10::cuda::CUDAStream stream);
  // The angles of positions below `positions` are in cosines_ and sines_.
  void coverPositions(int64_t positions);
  // The workspace's plan; before it is refused, memory that LibTorch keeps for later is given back.
  [[nodiscard]] std::optional<std::string> plan(const kernels::MethodOptions& method,
                                                const kernels::cuda::StepBounds& bounds);
  void fill(const StepBatch& batch, std::span<const uint32_t> places);
  void resize(int64_t rows);
  int64_t offset(Array array) const;
  template <typename T>
  T* onDevice(Array array) const;
  // out = in times matrix, so many rows in whole tiles.
  [[nodiscard]] std::optional<std::string> product(const at::Tensor& in, int64_t rows,
                                                   const at::Tensor& matrix, at::Tensor* out);
  // The same of the step's rows. What goes wrong is in refused_product_.
  void multiply(const at::Tensor& in, const at::Tensor& matrix, at::Tensor* out);
  [[nodiscard]] std::optional<std::string> attend(int64_t layer);
  bool hasMethod(int64_t layer) const { return !only_layer_ || *only_layer_ == layer; }
  // All that the step's kernels are given by value.
  std::string nameOfStep(const TokenChoice& choice) const;

  ModelConfig config_;
  CudaWeights weights_;
  cuda_ops::Number number_;
  c10::cuda::CUDAStream stream_;
  RopeTable rope_;
  at::Tensor cosines_, sines_;  // rope_ on the device
  std::shared_ptr<std::optional<std::string>> refused_copy_;
  KvPool pool_;
  kernels::cuda::Workspace workspace_;
  kernels::cuda::Workspace dense_workspace_;  // of the layers that do not have a step's method

  CudaProducts products_;
  std::optional<std::string> refused_product_;
  StepGraphs graphs_;
  uint64_t moves_ = 0;  // how often memory of a step moved: what follows, and the angles
  kernels::MethodOptions method_;
  std::optional<uint32_t> only_layer_;  // StepBatch's
  kernels::cuda::StepBounds bounds_;
  uint64_t seed_ = 0;
  int rows_ = 0;
  int max_pages_ = 0;  // entries of a row in the page table: the batch's, or those of the plan
  int64_t budgets_a_row_ = 1;      // and layer: 1, or one a head
  std::vector<uint32_t> budgets_;  // of one layer
  bool with_statistics_ = false;
  at::Tensor host_arrays_;  // pinned
  at::Tensor arrays_;
  at::Tensor statistics_, host_statistics_;  // bytes; pinned
  at::Tensor tokens_, host_tokens_;          // that were chosen; pinned
  // Activations, [rows in whole tiles, ...]; beyond the batch's rows they hold what was there.
  at::Tensor x_, normed_, qkv_, queries_, keys_, values_, attended_, projected_, gate_up_, gated_,
      logits_;
  at::Tensor zero_budget_values_;  // of one layer: the means of values, where they are kept
  at::Tensor attended_number_;     // attended_ as the products take it
};

}  // namespace allot
