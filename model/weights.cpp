#include "model/weights.h"

#include "model/safetensors.h"

namespace allot {
namespace {

// Appends the named tensor to `out`, as float32.
Status append(const Safetensors& file, const std::string& name, const std::vector<int64_t>& shape,
              std::vector<float>* out, uint64_t* parameters) {
  ALLOT_ASSIGN(const TensorView view, file.tensor(name, shape));
  const size_t start = out->size();
  out->resize(start + static_cast<size_t>(view.elements()));
  toFloat(view, out->data() + start);
  *parameters += static_cast<uint64_t>(view.elements());
  return {};
}

void finish(Matrix* matrix, int64_t outputs, int64_t inputs, bool packed) {
  matrix->outputs = outputs;
  matrix->inputs = inputs;
  if (!packed) return;
  matrix->packed = kernels::PackedWeights(matrix->rows.data(), static_cast<int>(outputs),
                                          static_cast<int>(inputs));
}

Result<LayerWeights> loadLayer(const Safetensors& file, const ModelConfig& config, int64_t layer,
                               bool packed, uint64_t* parameters) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  const int64_t mlp = config.intermediate_size;
  LayerWeights w;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape,
                       std::vector<float>* out) {
    return append(file, prefix + name + ".weight", shape, out, parameters);
  };
  ALLOT_TRY(add("input_layernorm", {hidden}, &w.attention_norm));
  ALLOT_TRY(add("self_attn.q_proj", {q, hidden}, &w.qkv.rows));
  ALLOT_TRY(add("self_attn.k_proj", {kv, hidden}, &w.qkv.rows));
  ALLOT_TRY(add("self_attn.v_proj", {kv, hidden}, &w.qkv.rows));
  if (config.qkv_bias) {
    for (const auto& [name, width] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
      ALLOT_TRY(append(file, prefix + "self_attn." + name + "_proj.bias", {width}, &w.qkv_bias,
                       parameters));
    }
  }
  ALLOT_TRY(add("self_attn.o_proj", {hidden, q}, &w.output.rows));
  ALLOT_TRY(add("post_attention_layernorm", {hidden}, &w.mlp_norm));
  ALLOT_TRY(add("mlp.gate_proj", {mlp, hidden}, &w.gate_up.rows));
  ALLOT_TRY(add("mlp.up_proj", {mlp, hidden}, &w.gate_up.rows));
  ALLOT_TRY(add("mlp.down_proj", {hidden, mlp}, &w.down.rows));
  finish(&w.qkv, q + 2 * kv, hidden, packed);
  finish(&w.output, hidden, q, packed);
  finish(&w.gate_up, 2 * mlp, hidden, packed);
  finish(&w.down, hidden, mlp, packed);
  return w;
}

}  // namespace

Result<Weights> Weights::load(const std::string& folder, const ModelConfig& config, bool packed) {
  ALLOT_ASSIGN(const Safetensors file, Safetensors::open(folder));
  Weights weights;
  weights.digest = file.digest();
  const std::vector<int64_t> table{config.vocab_size, config.hidden_size};
  ALLOT_TRY(
      append(file, "model.embed_tokens.weight", table, &weights.embeddings, &weights.parameters));
  for (int64_t l = 0; l < config.layers; ++l) {
    ALLOT_ASSIGN(LayerWeights layer, loadLayer(file, config, l, packed, &weights.parameters));
    weights.layers.push_back(std::move(layer));
  }
  ALLOT_TRY(append(file, "model.norm.weight", {config.hidden_size}, &weights.final_norm,
                   &weights.parameters));
  if (config.tied_embeddings) {
    weights.head.rows = weights.embeddings;
  } else {
    ALLOT_TRY(append(file, "lm_head.weight", table, &weights.head.rows, &weights.parameters));
  }
  finish(&weights.head, config.vocab_size, config.hidden_size, packed);
  return weights;
}

size_t Weights::bytes() const {
  const auto of = [](const std::vector<float>& floats) { return floats.size() * sizeof(float); };
  const auto both = [&](const Matrix& matrix) { return of(matrix.rows) + matrix.packed.bytes(); };
  size_t sum = of(embeddings) + of(final_norm) + both(head);
  for (const LayerWeights& layer : layers) {
    sum += of(layer.attention_norm) + of(layer.mlp_norm) + of(layer.qkv_bias) + both(layer.qkv) +
           both(layer.output) + both(layer.gate_up) + both(layer.down);
  }
  return sum;
}

}  // namespace allot
