#pragma once
// Metaspace: how tokenizers that come from SentencePiece models (Llama-2, Mistral) treat spaces:
// each is written U+2581, and text gets one in front. tokenizer.json says so in a normalizer
// (Prepend, Replace) or in a pre_tokenizer Metaspace; a decoder undoes it.
//
// Immutable after parse; any thread. Private to worker/model/, owned by Tokenizer.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

class Metaspace {
 public:
  using Take = std::function<void(std::string_view)>;

  // From the root of tokenizer.json; `file` names it in errors (kUsage).
  static Result<Metaspace> parse(const nlohmann::json& root, const std::string& file);

  // Calls take with each piece of `text` that BPE works on. `first`: the whole text begins here,
  // not behind an added token.
  void split(std::string_view text, bool first, const Take& take) const;

  // What a token of the vocabulary stands for: spaces again, and the byte of "<0x0A>".
  static std::string bytesOf(std::string_view token);
  // Of a whole decoded text: without the space that was put in front.
  std::string decoded(std::string text) const;

 private:
  // When a space is put in front of a text between added tokens.
  enum class Prepend { kNever, kAlways, kWhereNone, kFirstWhereNone };

  Status readNormalizer(const nlohmann::json& value, const std::string& where);
  Status readPreTokenizer(const nlohmann::json& value, const std::string& where);
  Status readDecoder(const nlohmann::json& value, const std::string& where);

  Prepend prepend_ = Prepend::kNever;
  bool replaces_ = false;  // spaces by U+2581
  bool splits_ = false;    // in front of each U+2581
  bool strips_ = false;    // a space at the front, when decoding
};

// "<0x0A>": how such a vocabulary names the byte.
std::string byteTokenName(unsigned char byte);

}  // namespace allot
