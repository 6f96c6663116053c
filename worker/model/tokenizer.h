#pragma once
// Tokenizer: Hugging Face tokenizer.json with byte-level BPE (GPT-2, Llama-3, Qwen2 and others), or
// BPE of characters with byte fallback (SentencePiece's: Llama-2, Mistral).
//
// A normalizer NFC (Qwen2), and added tokens that are single words, need a build with libutf8proc;
// other builds refuse such files.
// encode() adds no bos; bosToken() returns the one that belongs in front. Immutable after load;
// encode and decode may be called from any thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

// How encode() reads special tokens that are written out in a text: as tokens, or as ordinary text.
// kText is for data, which must not be able to end a chat's turn and begin another. Tokens of the
// forms <|...|> and <｜...｜> count as special here, even if the file does not call them special:
// some marks of DeepSeek's turns are not.
enum class Specials { kTokens, kText };

class Tokenizer {
 public:
  // Reads a tokenizer.json, with the files beside it for bosToken(), or a GGUF file. kUsage names
  // the file and the missing or unsupported part; kIo: a file cannot be read.
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // A part of a text.
  struct Part {
    std::string_view text;
    Specials specials = Specials::kTokens;
  };

  // Returns the token ids of UTF-8 text. Added tokens in the text become their ids, except those
  // that `specials` excludes. Bytes that are not UTF-8 are tokenised as bytes, and decode()
  // restores them. Bytes without a token in the vocabulary (control characters in SmolLM2's) become
  // the unknown token, or are left out if there is none. SentencePiece models may put a space in
  // front, some only where no token precedes. decode() removes it.
  std::vector<int32_t> encode(std::string_view text, Specials specials = Specials::kTokens) const;
  // Returns the token ids of the text that the parts are together. A special token counts if no
  // byte of it is in a part of kText; blanks that it takes may be in any part.
  std::vector<int32_t> encode(const std::vector<Part>& parts) const;
  // Returns the text of ids. Special tokens are left out if skip_special, ids without a token
  // always. The text is not UTF-8 if the ids begin or end within a character.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = true) const;
  // Returns the id of an added token, or of a vocabulary entry as the file writes it.
  std::optional<int32_t> idOf(std::string_view token) const;
  // Returns the id of an added token, which encode() finds whole in a text.
  std::optional<int32_t> addedIdOf(std::string_view token) const;
  // Returns the longest special token, of those that Specials::kText leaves as text, with which the
  // text begins.
  // Requires: the text is not empty.
  std::optional<int32_t> markAt(std::string_view text) const;
  size_t vocabSize() const;  // largest id + 1
  // Returns the token that the model was trained to see in front of a text; nothing if there is
  // none.
  std::optional<int32_t> bosToken() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the file of a model's tokenizer: a folder's tokenizer.json, or a GGUF file itself.
std::string tokenizerPath(const std::string& model);

}  // namespace allot
