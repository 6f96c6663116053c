#include "worker/model/bpe.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <queue>
#include <unordered_set>

#include "core/utf8.h"
#include "worker/model/json_file.h"
#include "worker/model/metaspace.h"

namespace allot {
namespace {

// Bytes that are printable in Latin-1 map to themselves; the others are numbered from U+0100.
struct Alphabet {
  Alphabet() {
    byte_of.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const int code = printable ? byte : next++;
      byte_of[static_cast<size_t>(code)] = static_cast<int16_t>(byte);
      std::string& utf8 = character[static_cast<size_t>(byte)];
      if (code < 0x80) {
        utf8 = static_cast<char>(code);
      } else {
        utf8 = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
  }

  std::array<std::string, 256> character;
  std::array<int16_t, 0x144> byte_of;  // code point -> byte, -1: not in the alphabet
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

// Refuses variants of BPE: if they were ignored, ids would not be those of the model's training.
Status refuseVariants(const nlohmann::json& model, const std::string& file) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const nlohmann::json* value = member(model, key);
    if (value != nullptr && *value != "") {
      return badInput(file + ": model." + key + ": " + described(*value) +
                      " is not supported; only byte-level BPE is");
    }
  }
  const nlohmann::json* dropout = member(model, "dropout");
  if (dropout != nullptr && *dropout != 0) {
    return badInput(file + ": model.dropout: " + described(*dropout) +
                    " is not supported; set it to null");
  }
  return {};
}

struct Candidate {
  uint32_t rank;
  int64_t left;  // index of the pair's left symbol
  int32_t id;    // what the pair becomes

  // The queue's top is the lowest rank, and of these the leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

const std::array<std::string, 256>& byteCharacters() { return alphabet().character; }

std::string toByteCharacters(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) token += alphabet().character[static_cast<unsigned char>(byte)];
  return token;
}

std::optional<std::string> fromByteCharacters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t i = 0; i < token.size(); ++i) {
    size_t code = static_cast<unsigned char>(token[i]);
    if (code >= 0x80) {
      if ((code & 0xe0) != 0xc0 || i + 1 == token.size()) return std::nullopt;
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3f);
    }
    if (code >= alphabet().byte_of.size() || alphabet().byte_of[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte_of[code]));
  }
  return bytes;
}

Result<Bpe> Bpe::parse(const nlohmann::json& model, const std::string& file) {
  if (!model.is_object()) return badInput(file + ": model is missing or not an object");
  // Files older than the type key are BPE when they have a vocab and merges.
  const nlohmann::json* type = member(model, "type");
  if (type != nullptr && *type != "BPE") {
    return badInput(file + ": model type " + described(*type) +
                    " is not supported; supported: \"BPE\" (byte-level)");
  }
  ALLOT_TRY(refuseVariants(model, file));
  Bpe bpe;
  ALLOT_ASSIGN(bpe.byte_fallback_, boolMember(model, "byte_fallback", false, file + ": model"));
  ALLOT_ASSIGN(bpe.ignore_merges_, boolMember(model, "ignore_merges", false, file + ": model"));
  ALLOT_TRY(bpe.readVocab(model, file));
  ALLOT_TRY(bpe.readMerges(model, file));
  return bpe;
}

Status Bpe::readVocab(const nlohmann::json& model, const std::string& file) {
  const nlohmann::json* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return badInput(file + " has no vocab (model.vocab must be an object of token: id)");
  }
  std::unordered_set<int64_t> seen;
  for (const auto& [token, value] : vocab->items()) {
    int64_t id = 0;
    if (!integerIn(value, 0, kMaxTokenIds - 1, id)) {
      return badInput(file + ": model.vocab: the id of " + inQuotes(token) + " is " +
                      described(value) + ", not an integer of 0.." +
                      std::to_string(kMaxTokenIds - 1));
    }
    if (!seen.insert(id).second) {
      return badInput(file + ": model.vocab: id " + std::to_string(id) + " of " + inQuotes(token) +
                      " is the id of another token too");
    }
    vocab_.emplace(token, static_cast<int32_t>(id));
  }
  return readBytes(model, file);
}

// Sets the token of each byte. Trained byte-level vocabularies may lack bytes that no text had
// (SmolLM2's does); these become unk_token, or nothing, as Hugging Face has it.
Status Bpe::readBytes(const nlohmann::json& model, const std::string& file) {
  ALLOT_ASSIGN(fuse_unknown_, boolMember(model, "fuse_unk", false, file + ": model"));
  unknown_ = kNoToken;
  if (const nlohmann::json* name = member(model, "unk_token");
      name != nullptr && name->is_string()) {
    unknown_ = idOf(name->get_ref<const std::string&>()).value_or(kNoToken);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string name =
        byte_fallback_ ? byteTokenName(static_cast<unsigned char>(byte)) : byteCharacters()[byte];
    byte_ids_[byte] = idOf(name).value_or(unknown_);
    const bool text = byte == '\n' || (byte >= ' ' && byte <= '~');
    if (idOf(name) || (!byte_fallback_ && !text)) continue;
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02x", static_cast<unsigned>(byte));
    return badInput(file + ": model.vocab has no token for byte " + hex + " (" + inQuotes(name) +
                    "), so it is not a " +
                    (byte_fallback_ ? "BPE with byte_fallback" : "byte-level BPE"));
  }
  return {};
}

Status Bpe::readMerges(const nlohmann::json& model, const std::string& file) {
  const nlohmann::json* merges = member(model, "merges");
  if (merges == nullptr || !merges->is_array()) {
    return badInput(file + " has no merges (model.merges must be a list of pairs)");
  }
  for (const nlohmann::json& entry : *merges) {
    // Of a GGUF file, which has scores: a list of pairs that have one rank.
    if (entry.is_array() && !entry.empty() && entry[0].is_array()) {
      for (const nlohmann::json& merge : entry) ALLOT_TRY(readMerge(merge, file));
    } else {
      ALLOT_TRY(readMerge(entry, file));
    }
    ++next_rank_;
  }
  return {};
}

Status Bpe::readMerge(const nlohmann::json& merge, const std::string& file) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return addMerge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                    file);
  }
  const std::string* text = merge.get_ptr<const std::string*>();
  const size_t space = text == nullptr ? std::string::npos : text->find(' ');
  if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) {
    return badInput(file + ": model.merges[" + std::to_string(next_rank_) +
                    "]: " + described(merge) + " is neither \"a b\" nor [\"a\", \"b\"]");
  }
  return addMerge(text->substr(0, space), text->substr(space + 1), file);
}

Status Bpe::addMerge(const std::string& left, const std::string& right, const std::string& file) {
  const std::string whole = left + right;
  const auto left_id = vocab_.find(left);
  const auto right_id = vocab_.find(right);
  const auto whole_id = vocab_.find(whole);
  for (const auto& [token, found] :
       {std::pair(&left, left_id), std::pair(&right, right_id), std::pair(&whole, whole_id)}) {
    if (found == vocab_.end()) {
      return badInput(file + ": model.merges[" + std::to_string(next_rank_) + "] (" +
                      inQuotes(left) + ", " + inQuotes(right) + ") needs " + inQuotes(*token) +
                      ", which is not in the vocab");
    }
  }
  // A pair listed twice: the last one counts, as in Hugging Face's loader.
  merges_.insert_or_assign(pairKey(left_id->second, right_id->second),
                           Merge{next_rank_, whole_id->second});
  return {};
}

// Returns the symbols that merges begin from.
std::vector<Bpe::Symbol> Bpe::symbolsOf(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  const auto add = [&](int32_t id) {
    const auto index = static_cast<int64_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t bytes = byte_fallback_ ? std::max<size_t>(utf8Length(piece.substr(at)), 1) : 1;
    const auto whole = byte_fallback_ ? vocab_.find(piece.substr(at, bytes)) : vocab_.end();
    if (whole != vocab_.end()) {
      add(whole->second);
    } else {
      for (size_t i = 0; i < bytes; ++i) {
        const int32_t id = byte_ids_[static_cast<unsigned char>(piece[at + i])];
        const bool fused =
            fuse_unknown_ && id == unknown_ && !symbols.empty() && symbols.back().id == unknown_;
        if (id != kNoToken && !fused) add(id);
      }
    }
    at += bytes;
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    const std::string name = byte_fallback_ ? std::string(piece) : toByteCharacters(piece);
    const auto whole = vocab_.find(name);
    if (whole != vocab_.end() && !hidden_.contains(whole->second)) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<Symbol> symbols = symbolsOf(piece);
  const auto length = static_cast<int64_t>(symbols.size());
  std::priority_queue<Candidate> queue;
  const auto mergeAt = [&](int64_t left) {
    return merges_.find(pairKey(symbols[left].id, symbols[symbols[left].next].id));
  };
  const auto offer = [&](int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    if (const auto merge = mergeAt(left); merge != merges_.end()) {
      queue.push({merge->second.rank, left, merge->second.id});
    }
  };
  for (int64_t i = 0; i < length; ++i) offer(i);

  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    if (left.gone || left.next < 0) continue;
    // Candidates are not withdrawn when a neighbour merges; a stale one is recognised here.
    const auto merge = mergeAt(top.left);
    if (merge == merges_.end() || merge->second.id != top.id) continue;
    Symbol& right = symbols[left.next];
    right.gone = true;
    left.id = top.id;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    offer(left.previous);
    offer(top.left);
  }
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) ids.push_back(symbol.id);
  }
}

std::optional<int32_t> Bpe::idOf(std::string_view token) const {
  const auto found = vocab_.find(token);
  if (found == vocab_.end()) return std::nullopt;
  return found->second;
}

}  // namespace allot
