#pragma once
// Metaspace: the treatment of spaces in tokenizers from SentencePiece models (Llama-2, Mistral).
// Each space is written U+2581, and most models put a U+2581 before a text. tokenizer.json declares
// both in a normalizer (Prepend, Replace) or pre_tokenizer Metaspace; a decoder undoes both.
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

  // Reads the root of tokenizer.json. Errors (kUsage) name `file`.
  static Result<Metaspace> parse(const nlohmann::json& root, const std::string& file);

  // Returns a text between added tokens as the normalizer writes it: the text itself without one.
  std::string normalised(std::string_view text) const;
  // Calls `take` with each piece of `text`, a normalised text between added tokens, that BPE works
  // on. first: no token precedes `text`.
  void split(std::string_view text, bool first, const Take& take) const;

  // Returns the bytes of a vocabulary token: the byte that a name like "<0x0A>" stands for, else
  // the token with spaces for U+2581.
  static std::string bytesOf(std::string_view token);
  // Removes a space at the start of a whole decoded text, if the decoder has such a step.
  std::string decoded(std::string text) const;

 private:
  // The texts that get U+2581 in front: none, all, those that do not begin with it, or of these
  // only one that no token precedes.
  enum class Prepend { kNever, kAlways, kWhereNone, kFirstWhereNone };

  Status readNormalizer(const nlohmann::json& value, const std::string& where);
  Status readPreTokenizer(const nlohmann::json& value, const std::string& where);
  Status readDecoder(const nlohmann::json& value, const std::string& where);

  Prepend prepend_ = Prepend::kNever;
  bool replaces_ = false;    // spaces by U+2581
  bool normalises_ = false;  // a normalizer does so, no pre_tokenizer
  bool splits_ = false;      // in front of each U+2581
  bool strips_ = false;      // a leading space, when decoding
};

// Returns the vocabulary's name of a byte, like "<0x0A>".
std::string byteTokenName(unsigned char byte);

}  // namespace allot
