#pragma once
// Tokenizer: Hugging Face tokenizer.json, byte-level BPE (GPT-2, Llama-3, Qwen2 and the like) and
// BPE of characters with byte fallback (SentencePiece's: Llama-2, Mistral).
//
// Text is taken as already NFC-normalised: a normalizer NFC (Qwen2) is accepted and does nothing.
// The post_processor is not applied, so no bos is added. Immutable after load; encode and decode
// may be called from any thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

class Tokenizer {
 public:
  // Reads `path`: a tokenizer.json, or a GGUF file. Errors (kUsage) name the file and what is
  // missing or not supported: not JSON, model type other than BPE, no vocab, no merges, unknown
  // pre-tokenizer.
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of UTF-8 text. Added (special) tokens in the text become their ids. Bytes that are
  // not UTF-8 are tokenised as bytes; decode gives them back. With byte fallback decode leaves out
  // one space at the start, which encode puts there.
  std::vector<int32_t> encode(std::string_view text) const;
  // The text of ids; special tokens are left out when skip_special, ids that no token has always.
  // Not UTF-8 when the ids begin or end within a character.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = true) const;
  std::optional<int32_t> idOf(std::string_view token) const;
  size_t vocabSize() const;  // largest id + 1

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The file that a model's tokenizer is in: a folder's tokenizer.json, or a GGUF file itself.
std::string tokenizerPath(const std::string& model);

}  // namespace allot
