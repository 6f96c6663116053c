#pragma once
// CudaModel: a Llama-architecture model on a GPU, and the stream operations of one decode step.
//
// Owns weights, pool, the kernels' workspace and the activations of a step. cuda_products.h
// multiplies a step's matrices, cuda_ops.h does the element-wise operations between them, kernels/
// the attention. One thread. Private to the decoder (cuda_backend.cpp) and allot-bench, like all
// units that include at::Tensor.
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

// Matrices are [inputs, outputs]: transposed views of the stored rows. Norms are float32.
struct CudaLayer {
  at::Tensor attention_norm, qkv, output, mlp_norm, gate_up, down;
  at::Tensor qkv_bias = {};                   // float32; undefined: none
  at::Tensor query_norm = {}, key_norm = {};  // [head_dim]; undefined: none

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
  at::Tensor head;  // [hidden, vocab]

  // Reads the checkpoint at `path`, layer by layer, onto the GPU. `read` gets the tensors outside
  // the layers. Errors: those of Weights::loadByLayer(). In float32 a run differs from a CPU run
  // with a bfloat16 cache only by the order of sums.
  static Result<CudaWeights> load(const ModelConfig& config, const std::string& path,
                                  WeightType type, Weights* read);
  // Makes random bfloat16 weights of a size that keeps activations near 1, for measuring time.
  static CudaWeights random(const ModelConfig& config, uint64_t seed);

  size_t bytes() const;
  cuda_ops::Number number() const;
};

class CudaModel {
 public:
  // Larger budgets are reduced to this number, which plans refuse with exactAbove=never.
  static constexpr uint32_t kTooManyDraws = 1u << 25;

  // Creates the model with keys and values in bfloat16, whatever the options say: half the bytes of
  // float32, and the type that the kernels read. kUsage if the GPU's memory is too small, if the
  // kernels lack the model's shapes, and for ZeroReads::kWindow.
  static Result<std::unique_ptr<CudaModel>> create(const ModelConfig& config, CudaWeights weights,
                                                   const KvPoolOptions& options);

  const ModelConfig& config() const { return config_; }
  const CudaWeights& weights() const { return weights_; }
  const at::Tensor& cosines() const { return cosines_; }
  const at::Tensor& sines() const { return sines_; }
  KvPool& pool() { return pool_; }
  kernels::cuda::Workspace& workspace() { return workspace_; }
  // Waits for the stream and returns Workspace::failure() of the last step or prompt.
  [[nodiscard]] std::optional<std::string> failure();
  // Returns the stream of all operations. Callers make it the current one.
  c10::cuda::CUDAStream stream() const { return stream_; }

  // Makes room for a prompt of `positions`: workspace and angles. A refusal is a sentence.
  [[nodiscard]] std::optional<std::string> planPrompt(int positions);

  // Makes room for a step and copies its arrays to pinned memory. If no memory moves, a graph of an
  // earlier step with equal nameOfStep() does this one as well. places: [rows], as in
  // Decoder::stepAndChoose(), if tokens are to be chosen.
  // Requires: the step before is done.
  [[nodiscard]] std::optional<std::string> prepare(const StepBatch& batch, bool statistics,
                                                   std::span<const uint32_t> places = {});

  // Puts the prepared step on the current stream: one upload, the kernels, and the copy of the
  // statistics to the host if prepare() got them. Does not wait, so that a graph can capture it.
  // attention = false leaves attention out, for measuring.
  [[nodiscard]] std::optional<std::string> enqueue(bool attention = true);
  // Is called by enqueue() after a layer's attention, if set. Such a step may wait, and cannot be
  // captured as a graph.
  std::function<std::optional<std::string>(int64_t layer)> after_attention;
  // Enqueues the step and the choice of the next tokens, as a graph if possible.
  // Requires: prepare() got places.
  [[nodiscard]] std::optional<std::string> enqueueAndChoose(const TokenChoice& choice);

  // [at least rows, vocab], float32, on the device.
  const at::Tensor& logits() const { return logits_; }
  // Computes the logits of a row as a step does. normed: [1, hidden] after the last norm, in the
  // weights' number type. logits: [vocab], float32, on the device. Runs on the current stream.
  [[nodiscard]] std::optional<std::string> logitsOf(const at::Tensor& normed, at::Tensor* logits);
  // Arrays of the last layer whose attention was enqueued: [at least rows, heads * head_dim].
  // zeroBudgetValues() is of KV heads, and undefined if no means of values are kept.
  const at::Tensor& queries() const { return queries_; }
  const at::Tensor& attended() const { return attended_; }
  const at::Tensor& zeroBudgetValues() const { return zero_budget_values_; }
  // [rows] on the host, once the step is done. prepare() must have had `statistics`, or `places`.
  const kernels::RowStatistics* statistics() const;
  const int32_t* tokens() const;
  uint64_t graphsLaunched() const { return graphs_.launched(); }

 private:
  // The arrays of a step, one after another in one allocation. All entries have 4 bytes.
  enum Array { kTokens, kLengths, kPositions, kSequences, kSteps, kPlaces, kBudgets, kPages };

  CudaModel(const ModelConfig& config, CudaWeights weights, c10::cuda::CUDAStream stream);
  // Makes sure that cosines_ and sines_ have the positions below `positions`.
  void coverPositions(int64_t positions);
  // Plans the workspace. Before a refusal, drops the graphs, frees what LibTorch caches, and
  // retries.
  [[nodiscard]] std::optional<std::string> plan(const kernels::MethodOptions& method,
                                                const kernels::cuda::StepBounds& bounds);
  void fill(const StepBatch& batch, std::span<const uint32_t> places);
  void resize(int64_t rows);
  int64_t offset(Array array) const;
  template <typename T>
  T* onDevice(Array array) const;
  // Computes out = in times matrix, for `rows` rows in whole tiles.
  [[nodiscard]] std::optional<std::string> product(const at::Tensor& in, int64_t rows,
                                                   const at::Tensor& matrix, at::Tensor* out);
  // Computes a product of the step's rows. An error goes to refused_product_.
  void multiply(const at::Tensor& in, const at::Tensor& matrix, at::Tensor* out);
  [[nodiscard]] std::optional<std::string> attend(int64_t layer);
  bool hasMethod(int64_t layer) const { return !only_layer_ || *only_layer_ == layer; }
  // Returns a text of all arguments of the step's kernels, except pointers (moves_).
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
  kernels::cuda::Workspace dense_workspace_;  // of layers without the step's method

  CudaProducts products_;
  std::optional<std::string> refused_product_;
  StepGraphs graphs_;
  uint64_t moves_ = 0;  // counts moves of a step's memory: of the members below, and of the angles
  kernels::MethodOptions method_;
  std::optional<uint32_t> only_layer_;  // of StepBatch
  kernels::cuda::StepBounds bounds_;
  uint64_t seed_ = 0;
  int rows_ = 0;
  int max_pages_ = 0;              // entries of a row in the page table, at least the batch's
  int64_t budgets_a_row_ = 1;      // entries a row and layer: 1, or one a head
  std::vector<uint32_t> budgets_;  // of one layer
  bool with_statistics_ = false;
  at::Tensor host_arrays_;  // pinned
  at::Tensor arrays_;
  at::Tensor statistics_, host_statistics_;  // bytes; pinned
  at::Tensor tokens_, host_tokens_;          // chosen tokens; pinned
  // Activations, [rows in whole tiles, ...]. Rows beyond the batch hold old values.
  at::Tensor x_, normed_, qkv_, queries_, keys_, values_, attended_, projected_, gate_up_, gated_,
      logits_;
  at::Tensor zero_budget_values_;  // means of values of one layer, if they are kept
  at::Tensor attended_number_;     // attended_ in the number type of the products
};

}  // namespace allot
