#pragma once
// The tensors of a Llama-architecture checkpoint in float32, in two layouts: plain rows for the
// prefill's matrix products, panels for decode steps on the CPU. Immutable once loaded; any thread.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "allot/kernels/dense_ops.h"
#include "core/result.h"
#include "worker/model/model_config.h"

namespace allot {

// A weight matrix [outputs, inputs].
struct Matrix {
  std::vector<float> rows;
  kernels::PackedWeights packed;
  int64_t outputs = 0;
  int64_t inputs = 0;
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  Matrix qkv;                         // [(heads + 2 kv_heads) * head_dim, hidden]
  std::vector<float> qkv_bias;        // [qkv.outputs]; empty: none
  std::vector<float> query_norm;      // [head_dim], of all query heads; empty: none
  std::vector<float> key_norm;        // the same for keys
  Matrix output;                      // [hidden, heads * head_dim]
  std::vector<float> mlp_norm;        // [hidden]
  Matrix gate_up;                     // [2 * intermediate, hidden]
  Matrix down;                        // [hidden, intermediate]
};

struct Weights {
  std::vector<float> embeddings;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Matrix head;                    // [vocab, hidden]; rows are empty if the embeddings serve as rows
  uint64_t parameters = 0;        // as stored: tied embeddings count once
  std::string digest;             // SHA-256 of the weight files
  // Tensors of a folder that the model has no place for, as it has none in transformers.
  std::vector<std::string> unused;

  size_t bytes() const;  // in memory, both layouts
  const std::vector<float>& headRows() const { return head.rows.empty() ? embeddings : head.rows; }

  // Returns the digest alone; reads the files without keeping them.
  static Result<std::string> digestOf(const std::string& path);
  // Returns true if the embeddings serve as the output matrix: the model ties the two, and the file
  // has one of them, or both of the same bytes.
  static Result<bool> areTied(const std::string& path, const ModelConfig& config);
  // Reads a Hugging Face folder or a GGUF file, into both layouts. Errors: those of Safetensors or
  // Gguf, and a GGUF file with other tensors beside. As in transformers 5, a head of other numbers
  // than the embeddings counts even if config.json ties the two, and one of two tied matrices may
  // be missing.
  static Result<Weights> load(const std::string& path, const ModelConfig& config);
  // Reads plain rows only. Each layer is passed to `take` as soon as it is read; the result has all
  // but the layers. A model on a GPU therefore need not fit the host's memory.
  static Result<Weights> loadByLayer(const std::string& path, const ModelConfig& config,
                                     const std::function<void(LayerWeights)>& take);
};

}  // namespace allot
