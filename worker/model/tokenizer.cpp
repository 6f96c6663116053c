#include "worker/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "core/utf8.h"
#include "worker/model/bpe.h"
#include "worker/model/gguf_model.h"
#include "worker/model/json_file.h"
#include "worker/model/metaspace.h"
#include "worker/model/nfc.h"
#include "worker/model/pre_tokenizer.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using Bos = std::optional<int32_t>;

constexpr size_t kMaxSettingsBytes = size_t{16} << 20;

// Returns the special token in front of the text, a Sequence, in the list `single`; none if there
// is none.
Result<Bos> templateBos(const nlohmann::json& step, const std::string& where, int64_t vocab_size) {
  const nlohmann::json* single = member(step, "single");
  if (single == nullptr || !single->is_array()) return badInput(where + " lacks single, a list");
  Bos bos;
  for (const nlohmann::json& item : *single) {
    if (member(item, "Sequence") != nullptr) return bos;
    const nlohmann::json* token = member(item, "SpecialToken");
    const nlohmann::json* name = token == nullptr ? nullptr : member(*token, "id");
    if (name == nullptr || !name->is_string()) break;
    const nlohmann::json* all = member(step, "special_tokens");
    const nlohmann::json* entry =
        all == nullptr ? nullptr : member(*all, name->get_ref<const std::string&>().c_str());
    const nlohmann::json* ids = entry == nullptr ? nullptr : member(*entry, "ids");
    int64_t id = 0;
    if (bos || ids == nullptr || !ids->is_array() || ids->size() != 1 ||
        !integerIn((*ids)[0], 0, vocab_size - 1, id)) {
      return badInput(where + ": " + described(*name) +
                      " in front of the text is not supported; supported: one token of the "
                      "vocabulary, with its id in special_tokens");
    }
    bos = static_cast<int32_t>(id);
  }
  return badInput(where + ": single is not special tokens around one Sequence");
}

Result<Bos> processorBos(const nlohmann::json& value, const std::string& path, int64_t vocab_size) {
  const std::string where = path + ": post_processor";
  std::vector<const nlohmann::json*> steps = {&value};
  if (memberIs(value, "type", "Sequence")) {
    const nlohmann::json* list = member(value, "processors");
    if (list == nullptr || !list->is_array()) return badInput(where + " lacks processors, a list");
    steps.clear();
    for (const nlohmann::json& step : *list) steps.push_back(&step);
  }
  Bos bos;
  for (const nlohmann::json* step : steps) {
    if (memberIs(*step, "type", "ByteLevel")) continue;
    if (!memberIs(*step, "type", "TemplateProcessing")) {
      return badInput(where + " type " + describedType(*step) +
                      " is not supported; supported: TemplateProcessing, ByteLevel, a Sequence of "
                      "those");
    }
    ALLOT_ASSIGN(const Bos more, templateBos(*step, where, vocab_size));
    if (bos && more) return badInput(where + " puts several tokens in front of a text");
    if (more) bos = more;
  }
  return bos;
}

// Returns the text of a token of tokenizer_config.json, which is a string or an object with
// `content`; null: it has none.
const std::string* tokenText(const nlohmann::json* value) {
  if (value == nullptr) return nullptr;
  const nlohmann::json* content = value->is_object() ? member(*value, "content") : value;
  return content == nullptr ? nullptr : content->get_ptr<const std::string*>();
}

// Returns the token, if any, that a tokenizer puts in front of a text. The tokenizer decides, not
// config.json, which names a bos even for models without one in front (Qwen2). The first of these
// sources that has it decides:
//   post_processor of tokenizer.json (`root`, read from `path`): TemplateProcessing with a special
//     token in front of the text, ByteLevel (none), a Sequence of those;
//   add_bos_token of the tokenizer_config.json beside it, with its bos_token;
//   without such a file, bos_token_id of the config.json beside it;
//   else none. Tokens that a template puts behind the text are ignored: a prompt goes on. `added`
// returns the ids of added tokens. Errors (kUsage): a post_processor of another type, one that puts
// several tokens in front, a damaged one.
Result<Bos> bosRule(const nlohmann::json& root, const std::string& path, int64_t vocab_size,
                    const std::function<Bos(std::string_view)>& added) {
  const nlohmann::json* processor = member(root, "post_processor");
  if (processor != nullptr) return processorBos(*processor, path, vocab_size);
  if (isGguf(path)) return Bos();
  std::error_code ignored;
  const fs::path folder = fs::path(path).parent_path();
  const std::string settings = (folder / "tokenizer_config.json").string();
  if (fs::exists(settings, ignored)) {
    ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(settings, kMaxSettingsBytes));
    ALLOT_ASSIGN(const bool adds, boolMember(config, "add_bos_token", false, settings));
    if (!adds) return Bos();
    const std::string* token = tokenText(member(config, "bos_token"));
    const Bos id = token == nullptr ? Bos() : added(*token);
    if (id) return id;
    return badInput(settings + ": add_bos_token is true, but bos_token is not an added token of " +
                    path);
  }
  const std::string model = (folder / "config.json").string();
  if (!fs::exists(model, ignored)) return Bos();
  ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(model, kMaxSettingsBytes));
  const nlohmann::json* value = member(config, "bos_token_id");
  int64_t id = 0;
  if (value == nullptr) return Bos();
  if (!integerIn(*value, 0, vocab_size - 1, id)) {
    return badInput(model + ": bos_token_id: " + described(*value) + " is not a token id of 0.." +
                    std::to_string(vocab_size - 1));
  }
  return static_cast<int32_t>(id);
}

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;
  bool control = false;      // text when Specials::kText
  bool single_word = false;  // is text beside a character of a word
  bool lstrip = false;       // takes the blanks in front
  bool rstrip = false;       // takes the blanks behind
  size_t put_in_front = 0;   // bytes of content, by the normalizer
};

// Where special tokens of a text count: in stretches, each up to its end, that are not data.
class Stretches {
 public:
  void add(size_t bytes, bool data) {
    if (bytes == 0) return;
    if (ends_.empty() || data_.back() != data) {
      ends_.push_back(size());
      data_.push_back(data);
    }
    ends_.back() += bytes;
  }
  size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // Returns true if no byte from `begin` to `end` is data.
  bool allow(size_t begin, size_t end) const {
    const size_t i = at(begin);
    return i < ends_.size() && end <= ends_[i] && !data_[i];
  }
  // Calls take for the begin and end of each stretch in a part of the text, and whether it is data.
  template <typename Take>
  void forEach(size_t begin, size_t end, const Take& take) const {
    for (size_t i = at(begin); begin < end; begin = ends_[i++]) {
      take(begin, std::min(end, ends_[i]), data_[i]);
    }
  }

 private:
  size_t at(size_t begin) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  }

  std::vector<size_t> ends_;
  std::vector<bool> data_;
};

// Returns the code point of a text's first character; 0 if there is none.
uint32_t firstCode(std::string_view text) {
  const size_t length = utf8Length(text);
  if (length < 2) return length == 0 ? 0 : static_cast<unsigned char>(text.front());
  return utf8Code(text.substr(0, length));
}

// Returns the bytes of a text's last character; 0 if there is none.
size_t lastLength(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size()); ++length) {
    if (utf8Length(text.substr(text.size() - length)) == length) return length;
  }
  return 0;
}

uint32_t lastCode(std::string_view text) {
  return firstCode(text.substr(text.size() - lastLength(text)));
}

// Returns true for Unicode's White_Space.
bool isBlank(uint32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

bool isControl(std::string_view content, bool special) {
  return special || (content.starts_with("<|") && content.ends_with("|>")) ||
         (content.starts_with("<｜") && content.ends_with("｜>"));
}

// A token as decode writes it.
struct Piece {
  std::string bytes;
  bool special = false;
};

// Finds added tokens in one pass over the text: the leftmost first, of these the longest. Like
// `tokenizers` it looks on behind a token that is not a single word, and before blanks that a token
// takes.
class AddedTokenMatcher {
 public:
  void add(const AddedToken& token) {
    std::vector<AddedToken>& same_start = by_first_byte_[firstByte(token.content)];
    const auto shorter = [&](const AddedToken& t) {
      return t.content.size() < token.content.size();
    };
    same_start.insert(std::find_if(same_start.begin(), same_start.end(), shorter), token);
  }

  // Calls plain for each text between matches that is not empty, and match for the id of each
  // match.
  template <typename Plain, typename Match>
  void split(std::string_view text, const Stretches& stretches, const Plain& plain,
             const Match& match) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const AddedToken* found = longestAt(text, at, stretches);
      if (found == nullptr) {
        ++at;
        continue;
      }
      size_t begin = at;
      size_t end = at += found->content.size();
      if (found->single_word && (isWordCharacter(lastCode(text.substr(0, begin))) ||
                                 isWordCharacter(firstCode(text.substr(end))))) {
        continue;
      }
      while (found->lstrip && begin > done && isBlank(lastCode(text.substr(0, begin)))) {
        begin -= lastLength(text.substr(0, begin));
      }
      while (found->rstrip && isBlank(firstCode(text.substr(end)))) {
        end += utf8Length(text.substr(end));
      }
      if (done < begin) plain(text.substr(done, begin - done));
      match(found->id);
      done = end;
    }
    if (done < text.size()) plain(text.substr(done));
  }

  // Returns the longest token at the beginning of a text that is not empty.
  const AddedToken* longestAt(std::string_view text) const {
    for (const AddedToken& token : by_first_byte_[firstByte(text)]) {
      if (text.starts_with(token.content)) return &token;
    }
    return nullptr;
  }

 private:
  static size_t firstByte(std::string_view text) {
    return static_cast<unsigned char>(text.front());
  }
  const AddedToken* longestAt(std::string_view text, size_t at, const Stretches& stretches) const {
    for (const AddedToken& token : by_first_byte_[firstByte(text.substr(at))]) {
      if (!text.substr(at).starts_with(token.content)) continue;
      if (!token.control || stretches.allow(at + token.put_in_front, at + token.content.size()))
        return &token;
    }
    return nullptr;
  }

  std::array<std::vector<AddedToken>, 256> by_first_byte_;
};

Result<AddedToken> parseAddedToken(const nlohmann::json& value, const std::string& file) {
  const std::string where = file + ": added_tokens";
  const nlohmann::json* content = member(value, "content");
  if (content == nullptr || !content->is_string() ||
      content->get_ref<const std::string&>().empty()) {
    return badInput(where + ": an entry lacks content, a text that is not empty");
  }
  AddedToken token;
  token.content = content->get<std::string>();
  const std::string entry = where + ": " + inQuotes(token.content);
  const nlohmann::json* id = member(value, "id");
  int64_t number = 0;
  if (id == nullptr || !integerIn(*id, 0, kMaxTokenIds - 1, number)) {
    return badInput(entry + ": id: " + (id == nullptr ? "missing" : described(*id)) +
                    "; must be an integer of 0.." + std::to_string(kMaxTokenIds - 1));
  }
  token.id = static_cast<int32_t>(number);
  ALLOT_ASSIGN(token.special, boolMember(value, "special", false, entry));
  ALLOT_ASSIGN(token.normalized, boolMember(value, "normalized", !token.special, entry));
  token.control = isControl(token.content, token.special);
  ALLOT_ASSIGN(token.single_word, boolMember(value, "single_word", false, entry));
  ALLOT_ASSIGN(token.lstrip, boolMember(value, "lstrip", false, entry));
  ALLOT_ASSIGN(token.rstrip, boolMember(value, "rstrip", false, entry));
  if (token.single_word && !nfcAvailable()) {
    return badInput(entry +
                    ": single_word: true needs libutf8proc, which this build lacks; "
                    "install it (Debian: libutf8proc-dev) and build again");
  }
  return token;
}

Error notSupported(const std::string& file, const char* part, const nlohmann::json& value,
                   const char* supported) {
  return {ErrorCode::kUsage, file + ": " + part + " type " + describedType(value) +
                                 " is not supported; supported: none, " + supported};
}

// Returns true if a byte-level tokenizer's normalizer is NFC, the only supported one.
Result<bool> readNormalizer(const nlohmann::json& root, const std::string& file) {
  const nlohmann::json* value = member(root, "normalizer");
  if (value == nullptr) return false;
  const nlohmann::json* steps = member(*value, "normalizers");
  const bool sequence =
      memberIs(*value, "type", "Sequence") && steps != nullptr && steps->is_array();
  const nlohmann::json list = sequence ? *steps : nlohmann::json::array({*value});
  for (const nlohmann::json& step : list) {
    if (!memberIs(step, "type", "NFC")) {
      return tl::unexpected(notSupported(file, "normalizer", step, "NFC"));
    }
  }
  if (!list.empty() && !nfcAvailable()) {
    return badInput(file +
                    ": normalizer type \"NFC\" needs libutf8proc, which this build lacks; install "
                    "it (Debian: libutf8proc-dev) and build again");
  }
  return !list.empty();
}

Status checkDecoder(const nlohmann::json& root, const std::string& file) {
  const nlohmann::json* value = member(root, "decoder");
  if (value == nullptr) return {};
  if (memberIs(*value, "type", "ByteLevel")) return {};
  return tl::unexpected(notSupported(file, "decoder", *value, "ByteLevel"));
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Bpe bpe_in) : bpe(std::move(bpe_in)) {}

  Status readAddedTokens(const nlohmann::json& root, const std::string& file);
  Status addToken(const AddedToken& token, const std::string& file);
  // Returns the id that `tokenizers` gives to an added token that is not in the vocabulary.
  int64_t nextId() const {
    const auto size = static_cast<int64_t>(bpe.vocab().size());
    return largest_added < size ? size : largest_added + 1;
  }
  std::optional<int32_t> addedIdOf(std::string_view token) const;
  // Returns the stretches of a normalised text, which was at `begin` of the text of `stretches`.
  Stretches stretchesOf(std::string_view text, const Stretches& stretches, size_t begin) const;
  std::string normalised(std::string_view text) const {
    if (metaspace) return metaspace->normalised(text);
    return composes && mayChangeInNfc(text) ? nfc(text) : std::string(text);
  }

  Bpe bpe;
  // Exactly one of these is set.
  std::optional<PreTokenizer> pre_tokenizer;
  std::optional<Metaspace> metaspace;
  std::unordered_map<std::string, int32_t> added;
  int64_t largest_added = -1;  // id
  bool composes = false;       // the normalizer is NFC
  // Tokens that are looked for before and after normalisation.
  AddedTokenMatcher before;
  AddedTokenMatcher after;
  bool marks_after = false;  // one of them is a control token
  AddedTokenMatcher marks;   // the control tokens, as the file spells them
  std::unordered_map<int32_t, Piece> pieces;
  size_t vocab_size = 0;
  std::optional<int32_t> bos;
};

Status Tokenizer::Impl::readAddedTokens(const nlohmann::json& root, const std::string& file) {
  for (const auto& [token, id] : bpe.vocab()) {
    pieces.emplace(
        id, Piece{metaspace ? Metaspace::bytesOf(token) : fromByteCharacters(token).value_or(token),
                  false});
  }
  const nlohmann::json* tokens = member(root, "added_tokens");
  if (tokens != nullptr && !tokens->is_array()) {
    return badInput(file + ": added_tokens is not a list");
  }
  if (tokens != nullptr) {
    for (const nlohmann::json& value : *tokens) {
      ALLOT_ASSIGN(const AddedToken token, parseAddedToken(value, file));
      ALLOT_TRY(addToken(token, file));
    }
  }
  for (const auto& entry : pieces) {
    vocab_size = std::max(vocab_size, static_cast<size_t>(entry.first) + 1);
  }
  return {};
}

Status Tokenizer::Impl::addToken(const AddedToken& token, const std::string& file) {
  const std::string entry = file + ": added_tokens: " + inQuotes(token.content);
  if (!added.emplace(token.content, token.id).second) {
    return badInput(entry + " is there twice; remove one");
  }
  // An added token may be in the vocab too, with the same id.
  const std::optional<int32_t> vocab_id = bpe.idOf(token.content);
  if (vocab_id.has_value() && *vocab_id != token.id) {
    return badInput(entry + " has id " + std::to_string(token.id) + ", but " +
                    std::to_string(*vocab_id) + " in model.vocab");
  }
  if (!vocab_id.has_value() && pieces.contains(token.id)) {
    return badInput(entry + ": id " + std::to_string(token.id) + " is the id of another token too");
  }
  if (!vocab_id.has_value() && !isGguf(file) && token.id != nextId()) {
    return badInput(entry + " has id " + std::to_string(token.id) +
                    ", but would become the next one, " + std::to_string(nextId()) +
                    ", in Hugging Face's tokenizers; add the tokens between them");
  }
  largest_added = std::max<int64_t>(largest_added, token.id);
  // With ignore_merges a piece that equals a token becomes it, which must not be a control token.
  if (token.control) bpe.hideWhole(token.id);
  pieces[token.id] = {
      metaspace ? token.content : fromByteCharacters(token.content).value_or(token.content),
      token.special};
  if (token.control) marks.add(token);
  AddedToken sought = token;
  if (token.normalized) sought.content = normalised(token.content);
  if (token.normalized) sought.put_in_front = normalised("").size();
  marks_after = marks_after || (token.normalized && token.control);
  (token.normalized ? after : before).add(sought);
  return {};
}

Stretches Tokenizer::Impl::stretchesOf(std::string_view text, const Stretches& stretches,
                                       size_t begin) const {
  Stretches out;
  if (!marks_after) return out;
  const size_t put_in_front = normalised("").size();
  stretches.forEach(begin, begin + text.size(), [&](size_t from, size_t to, bool data) {
    const size_t bytes = normalised(text.substr(from - begin, to - from)).size();
    out.add(from == begin ? bytes : bytes - put_in_front, data);
  });
  // A character that composes with one of another stretch moves all behind it: no token counts.
  return out.size() == normalised(text).size() ? out : Stretches();
}

std::optional<int32_t> Tokenizer::Impl::addedIdOf(std::string_view token) const {
  const auto found = added.find(std::string(token));
  if (found == added.end()) return std::nullopt;
  return found->second;
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  nlohmann::json root;
  if (isGguf(path)) {
    ALLOT_ASSIGN(const Gguf gguf, Gguf::open(path));
    ALLOT_ASSIGN(root, ggufTokenizer(gguf));
  } else {
    ALLOT_ASSIGN(root, readJsonFile(path, kMaxTokenizerBytes));
  }
  if (!root.is_object()) return badInput(path + " is not a JSON object");
  const nlohmann::json* model = member(root, "model");
  const nlohmann::json* pre_tokenizer = member(root, "pre_tokenizer");
  ALLOT_ASSIGN(Bpe bpe, Bpe::parse(model == nullptr ? nlohmann::json() : *model, path));
  auto impl = std::make_unique<Impl>(std::move(bpe));
  if (impl->bpe.byteFallback()) {
    ALLOT_ASSIGN(impl->metaspace, Metaspace::parse(root, path));
  } else {
    ALLOT_TRY(checkDecoder(root, path));
    ALLOT_ASSIGN(impl->composes, readNormalizer(root, path));
    ALLOT_ASSIGN(
        impl->pre_tokenizer,
        PreTokenizer::parse(pre_tokenizer == nullptr ? nlohmann::json() : *pre_tokenizer, path));
  }
  ALLOT_TRY(impl->readAddedTokens(root, path));
  const auto added = [&](std::string_view token) { return impl->addedIdOf(token); };
  ALLOT_ASSIGN(impl->bos, bosRule(root, path, static_cast<int64_t>(impl->vocab_size), added));
  return Tokenizer(std::move(impl));
}

std::string tokenizerPath(const std::string& model) {
  return isGguf(model) ? model : model + "/tokenizer.json";
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  return encode({{text, specials}});
}

std::vector<int32_t> Tokenizer::encode(const std::vector<Part>& parts) const {
  std::string text;
  Stretches stretches;
  for (const Part& part : parts) {
    text += part.text;
    stretches.add(part.text.size(), part.specials == Specials::kText);
  }
  std::vector<int32_t> ids;
  const auto addId = [&](int32_t id) { ids.push_back(id); };
  const auto encodePiece = [&](std::string_view piece) { impl_->bpe.encode(piece, ids); };
  const auto secondPass = [&](std::string_view rest) {
    const std::string normalised = impl_->normalised(rest);
    const auto encodePlain = [&](std::string_view plain) {
      if (impl_->metaspace) {
        const bool first = rest.data() == text.data() && plain.data() == normalised.data();
        impl_->metaspace->split(plain, first, encodePiece);
      } else {
        impl_->pre_tokenizer->split(plain, encodePiece);
      }
    };
    const auto begin = static_cast<size_t>(rest.data() - text.data());
    impl_->after.split(normalised, impl_->stretchesOf(rest, stretches, begin), encodePlain, addId);
  };
  impl_->before.split(text, stretches, secondPass, addId);
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    const auto found = impl_->pieces.find(id);
    if (found == impl_->pieces.end() || (skip_special && found->second.special)) continue;
    text += found->second.bytes;
  }
  return impl_->metaspace ? impl_->metaspace->decoded(std::move(text)) : text;
}

std::optional<int32_t> Tokenizer::addedIdOf(std::string_view token) const {
  return impl_->addedIdOf(token);
}

std::optional<int32_t> Tokenizer::markAt(std::string_view text) const {
  const AddedToken* found = impl_->marks.longestAt(text);
  return found == nullptr ? std::nullopt : std::optional(found->id);
}

std::optional<int32_t> Tokenizer::idOf(std::string_view token) const {
  const std::optional<int32_t> added = addedIdOf(token);
  return added ? added : impl_->bpe.idOf(token);
}

size_t Tokenizer::vocabSize() const { return impl_->vocab_size; }

std::optional<int32_t> Tokenizer::bosToken() const { return impl_->bos; }

}  // namespace allot
