#pragma once
// Tokenizer: Hugging Face tokenizer.json, byte-level BPE (GPT-2, Llama-3, Qwen2 and the like) and
// BPE of characters with byte fallback (SentencePiece's: Llama-2, Mistral).
//
// A normalizer NFC (Qwen2) is applied, in builds that have libutf8proc; others refuse such files.
// encode puts no bos in front; bosToken says which one belongs there. Immutable after load; encode
// and decode may be called from any thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

// What special tokens written out in a text are: tokens, or the ordinary text that they look like.
// The latter is for text from data, which must not be able to end a chat's turn and begin another.
// Tokens of the forms <|...|> and <｜...｜> count as special here, whatever the file calls them
// (DeepSeek's turns are marked by some that are not).
enum class Specials { kTokens, kText };

class Tokenizer {
 public:
  // Reads `path`: a tokenizer.json (and for bosToken the files beside it, see bos_rule.h), or a
  // GGUF file. Errors (kUsage) name the file and what is missing or not supported: not JSON, model
  // type other than BPE, no vocab, no merges, unknown pre-tokenizer.
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of UTF-8 text. Added (special) tokens in the text become their ids. Bytes that are
  // not UTF-8 are tokenised as bytes; decode gives them back, but for control characters and rare
  // bytes that a vocabulary has no token for (SmolLM2's), which are left out. With byte fallback
  // decode leaves out one space at the start, which encode puts there. `begins`: no token stands in
  // front, which decides about that space.
  std::vector<int32_t> encode(std::string_view text, Specials specials = Specials::kTokens,
                              bool begins = true) const;
  // The text of ids; special tokens are left out when skip_special, ids that no token has always.
  // Not UTF-8 when the ids begin or end within a character.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = true) const;
  std::optional<int32_t> idOf(std::string_view token) const;
  // Only of the added tokens, which encode finds whole in a text.
  std::optional<int32_t> addedIdOf(std::string_view token) const;
  size_t vocabSize() const;  // largest id + 1
  // What the model was trained to see in front of a text; nothing where the tokenizer adds none.
  std::optional<int32_t> bosToken() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The file that a model's tokenizer is in: a folder's tokenizer.json, or a GGUF file itself.
std::string tokenizerPath(const std::string& model);

}  // namespace allot
