#include "worker/model/model_digest.h"

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/digest.h"
#include "worker/model/gguf_model.h"
#include "worker/model/mapped_file.h"

namespace allot {
namespace {

// A text of values, each with its end, that no other values have.
class Text {
 public:
  template <typename T>
  void add(const T& value) {
    if constexpr (std::is_same_v<T, float>) {
      add(std::bit_cast<uint32_t>(value));
    } else if constexpr (std::is_enum_v<T>) {
      add(static_cast<int>(value));
    } else {
      text_ += std::to_string(value) + ";";
    }
  }
  void add(const std::string& value) { text_ += std::to_string(value.size()) + ":" + value + ";"; }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T value : values) add(value);
  }
  template <typename... Values>
  void addAll(const Values&... values) {
    (add(values), ...);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Result<std::string> modelDigest(const std::string& path, const ModelConfig& config,
                                const Tokenizer& tokenizer) {
  // A new field does not compile until it is named here.
  const auto& [architecture, vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads,
               head_dim, rms_norm_eps, rope_theta, scaling, unrotated, qkv_bias, qk_norm,
               sliding_window, max_positions, tied_embeddings, eos_tokens] = config;
  const auto& [kind, factor, low_frequency, high_frequency, original_positions, whole_channels,
               magnitude, factors] = scaling;
  Text text;
  text.addAll(architecture, vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads,
              head_dim, rms_norm_eps, rope_theta);
  text.addAll(kind, factor, low_frequency, high_frequency, original_positions, whole_channels,
              magnitude, factors);
  text.addAll(unrotated, qkv_bias, qk_norm, sliding_window, max_positions, tied_embeddings,
              eos_tokens, tokenizer.bosToken().value_or(-1));
  if (isGguf(path)) return sha256Hex(text.text());
  ALLOT_ASSIGN(const MappedFile file, MappedFile::open(tokenizerPath(path)));
  const std::string_view bytes{reinterpret_cast<const char*>(file.data()), file.size()};
  return sha256Hex(text.text() + sha256Hex(bytes));
}

}  // namespace allot
