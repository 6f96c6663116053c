#pragma once
// Bpe: the vocabulary and the merges of a BPE, which turn the bytes of one piece into ids. Tokens
// are made of bytes (byte-level) or of characters. With byte_fallback a character that is not in
// the vocabulary becomes a token for each of its bytes.
//
// Immutable after parse; any thread. Private to worker/model/, owned by Tokenizer.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/result.h"

namespace allot {

// Returns the character of each byte, in UTF-8, in the byte-level alphabet of GPT-2's tokenizer.
// Its characters are printable, so that a JSON string can hold any bytes.
const std::array<std::string, 256>& byteCharacters();

// Turns any bytes into a vocabulary entry of that alphabet.
std::string toByteCharacters(std::string_view bytes);

// Turns a vocabulary entry into its bytes. Returns nothing if a character is not in the alphabet.
std::optional<std::string> fromByteCharacters(std::string_view token);

// Upper bound of token ids: far above any vocabulary, and small enough to index with.
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 24;

class Bpe {
 public:
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Vocab = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

  // Reads the "model" member of tokenizer.json. Errors (kUsage) name `file`.
  static Result<Bpe> parse(const nlohmann::json& model, const std::string& file);

  // Appends the ids of a piece of any bytes. Bytes that the vocabulary lacks become unk_token, or
  // are left out if there is no unk_token. Takes O(n log n) in the length of the piece.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

  // Excludes this token as the id of a whole piece (ignore_merges). Called only while loading.
  void hideWhole(int32_t id) { hidden_.insert(id); }

  std::optional<int32_t> idOf(std::string_view token) const;
  // Returns the vocabulary, in the byte-level alphabet or in characters and names like "<0x0A>".
  const Vocab& vocab() const { return vocab_; }
  bool byteFallback() const { return byte_fallback_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  struct Symbol {
    int32_t id;
    int64_t previous;  // index, -1: none
    int64_t next;      // index, -1: none
    bool gone = false;
  };

  std::vector<Symbol> symbolsOf(std::string_view piece) const;
  static uint64_t pairKey(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Status readVocab(const nlohmann::json& model, const std::string& file);
  Status readBytes(const nlohmann::json& model, const std::string& file);
  Status readMerges(const nlohmann::json& model, const std::string& file);
  Status readMerge(const nlohmann::json& merge, const std::string& file);
  Status addMerge(const std::string& left, const std::string& right, const std::string& file);

  Vocab vocab_;
  std::unordered_set<int32_t> hidden_;
  std::unordered_map<uint64_t, Merge> merges_;  // by pairKey
  static constexpr int32_t kNoToken = -1;
  std::array<int32_t, 256> byte_ids_{};
  int32_t unknown_ = kNoToken;
  bool fuse_unknown_ = false;  // a run of unknown bytes is one token
  uint32_t next_rank_ = 0;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;  // a piece that is in the vocabulary is one token (Llama-3)
};

}  // namespace allot
