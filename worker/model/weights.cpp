#include "worker/model/weights.h"

#include <cstring>
#include <set>

#include "worker/model/gguf_model.h"
#include "worker/model/safetensors.h"

namespace allot {
namespace {

// Appends the tensor of a Hugging Face name to `out`, as float32.
using Append = std::function<Status(const std::string& name, const std::vector<int64_t>& shape,
                                    std::vector<float>* out)>;
using Contains = std::function<bool(const std::string& name)>;

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

void shape(Matrix* matrix, int64_t outputs, int64_t inputs) {
  matrix->outputs = outputs;
  matrix->inputs = inputs;
}

void pack(Matrix* matrix, const std::vector<float>& rows) {
  matrix->packed = kernels::PackedWeights(rows.data(), static_cast<int>(matrix->outputs),
                                          static_cast<int>(matrix->inputs));
}

Result<LayerWeights> loadLayer(const Append& append, const ModelConfig& config, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  const int64_t mlp = config.intermediate_size;
  LayerWeights w;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape,
                       std::vector<float>* out) {
    return append(prefix + name + ".weight", shape, out);
  };
  ALLOT_TRY(add("input_layernorm", {hidden}, &w.attention_norm));
  ALLOT_TRY(add("self_attn.q_proj", {q, hidden}, &w.qkv.rows));
  ALLOT_TRY(add("self_attn.k_proj", {kv, hidden}, &w.qkv.rows));
  ALLOT_TRY(add("self_attn.v_proj", {kv, hidden}, &w.qkv.rows));
  if (config.qkv_bias) {
    for (const auto& [name, width] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
      ALLOT_TRY(append(prefix + "self_attn." + name + "_proj.bias", {width}, &w.qkv_bias));
    }
  }
  if (config.qk_norm) {
    ALLOT_TRY(add("self_attn.q_norm", {config.head_dim}, &w.query_norm));
    ALLOT_TRY(add("self_attn.k_norm", {config.head_dim}, &w.key_norm));
  }
  ALLOT_TRY(add("self_attn.o_proj", {hidden, q}, &w.output.rows));
  ALLOT_TRY(add("post_attention_layernorm", {hidden}, &w.mlp_norm));
  ALLOT_TRY(add("mlp.gate_proj", {mlp, hidden}, &w.gate_up.rows));
  ALLOT_TRY(add("mlp.up_proj", {mlp, hidden}, &w.gate_up.rows));
  ALLOT_TRY(add("mlp.down_proj", {hidden, mlp}, &w.down.rows));
  shape(&w.qkv, q + 2 * kv, hidden);
  shape(&w.output, hidden, q);
  shape(&w.gate_up, 2 * mlp, hidden);
  shape(&w.down, hidden, mlp);
  return w;
}

Result<Weights> loadAll(const Append& from, const Contains& contains, std::string digest,
                        const ModelConfig& config, bool tied,
                        const std::function<void(LayerWeights)>& take) {
  Weights weights;
  weights.digest = std::move(digest);
  const Append append = [&](const std::string& name, const std::vector<int64_t>& shape,
                            std::vector<float>* out) -> Status {
    const size_t before = out->size();
    ALLOT_TRY(from(name, shape, out));
    weights.parameters += out->size() - before;
    return {};
  };
  const std::vector<int64_t> table{config.vocab_size, config.hidden_size};
  const bool head_alone = tied && !contains(kEmbeddings) && contains(kHead);
  ALLOT_TRY(append(head_alone ? kHead : kEmbeddings, table, &weights.embeddings));
  for (int64_t l = 0; l < config.layers; ++l) {
    ALLOT_ASSIGN(LayerWeights layer, loadLayer(append, config, l));
    take(std::move(layer));
  }
  ALLOT_TRY(append("model.norm.weight", {config.hidden_size}, &weights.final_norm));
  if (!tied) ALLOT_TRY(append(kHead, table, &weights.head.rows));
  shape(&weights.head, config.vocab_size, config.hidden_size);
  return weights;
}

Result<bool> tiedIn(const Safetensors& file, const ModelConfig& config) {
  if (!config.tied_embeddings || !file.contains(kHead) || !file.contains(kEmbeddings))
    return config.tied_embeddings;
  const std::vector<int64_t> table{config.vocab_size, config.hidden_size};
  ALLOT_ASSIGN(const TensorView head, file.tensor(kHead, table));
  ALLOT_ASSIGN(const TensorView embeddings, file.tensor(kEmbeddings, table));
  return head.type == embeddings.type && std::memcmp(head.data, embeddings.data, head.bytes) == 0;
}

// Returns the tensors that were not read, without those that earlier versions of transformers saved
// and that follow from config.json.
std::vector<std::string> unusedIn(const Safetensors& file, const std::set<std::string>& used,
                                  bool tied) {
  std::vector<std::string> unused = file.names();
  std::erase_if(unused, [&](const std::string& name) {
    return used.contains(name) || name.ends_with("rotary_emb.inv_freq") || (tied && name == kHead);
  });
  return unused;
}

}  // namespace

Result<bool> Weights::areTied(const std::string& path, const ModelConfig& config) {
  if (isGguf(path) || !config.tied_embeddings) return config.tied_embeddings;
  ALLOT_ASSIGN(const Safetensors file, Safetensors::open(path));
  return tiedIn(file, config);
}

Result<std::string> Weights::digestOf(const std::string& path) {
  if (isGguf(path)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(path));
    return gguf.digest();
  }
  ALLOT_ASSIGN(const Safetensors file, Safetensors::open(path));
  return file.digest();
}

Result<Weights> Weights::load(const std::string& path, const ModelConfig& config) {
  std::vector<LayerWeights> layers;
  ALLOT_ASSIGN(Weights weights, loadByLayer(path, config, [&](LayerWeights layer) {
                 for (Matrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
                   pack(matrix, matrix->rows);
                 }
                 layers.push_back(std::move(layer));
               }));
  pack(&weights.head, weights.headRows());
  weights.layers = std::move(layers);
  return weights;
}

Result<Weights> Weights::loadByLayer(const std::string& path, const ModelConfig& config,
                                     const std::function<void(LayerWeights)>& take) {
  if (isGguf(path)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(path));
    const auto append = [&](const std::string& name, const std::vector<int64_t>& shape,
                            std::vector<float>* out) {
      return appendGgufTensor(gguf, config, name, shape, out);
    };
    const auto contains = [&](const std::string& name) { return hasGgufTensor(gguf, name); };
    std::set<std::string> names;
    const auto note = [&](const std::string& name, const std::vector<int64_t>& shape,
                          std::vector<float>*) {
      names.insert(name);
      return checkGgufTensor(gguf, name, shape);
    };
    const bool tied = config.tied_embeddings;
    ALLOT_TRY(loadAll(note, contains, "", config, tied, [](const LayerWeights&) {}));
    ALLOT_TRY(checkNoOthers(gguf, names));
    return loadAll(append, contains, gguf.digest(), config, tied, take);
  }
  ALLOT_ASSIGN(const Safetensors file, Safetensors::open(path));
  ALLOT_ASSIGN(const bool tied, tiedIn(file, config));
  std::set<std::string> used;
  const auto append = [&](const std::string& name, const std::vector<int64_t>& shape,
                          std::vector<float>* out) -> Status {
    used.insert(name);
    ALLOT_ASSIGN(const TensorView view, file.tensor(name, shape));
    const size_t start = out->size();
    out->resize(start + static_cast<size_t>(view.elements()));
    toFloat(view, out->data() + start);
    return {};
  };
  const auto contains = [&](const std::string& name) { return file.contains(name); };
  ALLOT_ASSIGN(Weights weights, loadAll(append, contains, file.digest(), config, tied, take));
  weights.unused = unusedIn(file, used, tied);
  return weights;
}

size_t Weights::bytes() const {
  const auto of = [](const std::vector<float>& floats) { return floats.size() * sizeof(float); };
  const auto both = [&](const Matrix& matrix) { return of(matrix.rows) + matrix.packed.bytes(); };
  size_t sum = of(embeddings) + of(final_norm) + both(head);
  for (const LayerWeights& layer : layers) {
    sum += of(layer.attention_norm) + of(layer.mlp_norm) + of(layer.qkv_bias) +
           of(layer.query_norm) + of(layer.key_norm) + both(layer.qkv) + both(layer.output) +
           both(layer.gate_up) + both(layer.down);
  }
  return sum;
}

}  // namespace allot
