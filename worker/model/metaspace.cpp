#include "worker/model/metaspace.h"

#include <cstdio>
#include <cstdlib>

#include "worker/model/json_file.h"

namespace allot {
namespace {

constexpr std::string_view kMark = "\u2581";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, from.size()) == from) {
      out += to;
      at += from.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

// Returns true if a normalizer or decoder step replaces the text `from` by `to`.
bool isReplace(const nlohmann::json& step, std::string_view from, std::string_view to) {
  const nlohmann::json* pattern = member(step, "pattern");
  return memberIs(step, "type", "Replace") && pattern != nullptr &&
         memberIs(*pattern, "String", from) && memberIs(step, "content", to);
}

// Returns the steps of a Sequence, its member `list`, or the value alone.
std::vector<nlohmann::json> stepsOf(const nlohmann::json& value, const char* list) {
  const nlohmann::json* steps = member(value, list);
  if (steps == nullptr || !steps->is_array()) return {value};
  return {steps->begin(), steps->end()};
}

}  // namespace

std::string byteTokenName(unsigned char byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", byte);
  return name;
}

Result<Metaspace> Metaspace::parse(const nlohmann::json& root, const std::string& file) {
  Metaspace metaspace;
  if (const nlohmann::json* value = member(root, "normalizer"); value != nullptr) {
    ALLOT_TRY(metaspace.readNormalizer(*value, file + ": normalizer"));
  }
  if (const nlohmann::json* value = member(root, "pre_tokenizer"); value != nullptr) {
    ALLOT_TRY(metaspace.readPreTokenizer(*value, file + ": pre_tokenizer"));
  }
  if (const nlohmann::json* value = member(root, "decoder"); value != nullptr) {
    ALLOT_TRY(metaspace.readDecoder(*value, file + ": decoder"));
  }
  if (!metaspace.replaces_) {
    return badInput(file +
                    ": neither normalizer nor pre_tokenizer writes spaces as U+2581, as a "
                    "BPE with byte_fallback has them");
  }
  return metaspace;
}

Status Metaspace::readNormalizer(const nlohmann::json& value, const std::string& where) {
  for (const nlohmann::json& step : stepsOf(value, "normalizers")) {
    if (memberIs(step, "type", "Prepend") && memberIs(step, "prepend", kMark) && !replaces_) {
      prepend_ = Prepend::kAlways;
    } else if (isReplace(step, " ", kMark)) {
      replaces_ = normalises_ = true;
    } else {
      return badInput(where + " type " + describedType(step) +
                      " is not supported; supported: Prepend and Replace of spaces by U+2581");
    }
  }
  return {};
}

Status Metaspace::readPreTokenizer(const nlohmann::json& value, const std::string& where) {
  if (!memberIs(value, "type", "Metaspace") || !memberIs(value, "replacement", kMark) ||
      replaces_ || prepend_ != Prepend::kNever) {
    return badInput(where + " type " + describedType(value) +
                    " is not supported here; supported: none, or Metaspace with replacement "
                    "U+2581 and no normalizer");
  }
  replaces_ = true;
  ALLOT_ASSIGN(splits_, boolMember(value, "split", true, where));
  // Older files have add_prefix_space instead of prepend_scheme.
  ALLOT_ASSIGN(const bool prefix, boolMember(value, "add_prefix_space", true, where));
  const nlohmann::json* scheme = member(value, "prepend_scheme");
  if (scheme == nullptr) {
    prepend_ = prefix ? Prepend::kWhereNone : Prepend::kNever;
  } else if (*scheme == "always") {
    prepend_ = Prepend::kWhereNone;
  } else if (*scheme == "first") {
    prepend_ = Prepend::kFirstWhereNone;
  } else if (*scheme == "never") {
    prepend_ = Prepend::kNever;
  } else {
    return badInput(where + ": prepend_scheme: " + described(*scheme) +
                    " is not supported; supported: \"always\", \"first\", \"never\"");
  }
  return {};
}

Status Metaspace::readDecoder(const nlohmann::json& value, const std::string& where) {
  for (const nlohmann::json& step : stepsOf(value, "decoders")) {
    const bool plain = memberIs(step, "type", "ByteFallback") || memberIs(step, "type", "Fuse");
    if (plain || isReplace(step, kMark, " ")) continue;
    const bool strip = memberIs(step, "type", "Strip") && memberIs(step, "content", " ") &&
                       memberIs(step, "start", 1) && memberIs(step, "stop", 0);
    if (!strip) {
      return badInput(where + " type " + describedType(step) +
                      " is not supported here; supported: Replace of U+2581 by a space, "
                      "ByteFallback, Fuse, Strip of one space at the start");
    }
    strips_ = true;
  }
  return {};
}

std::string Metaspace::normalised(std::string_view text) const {
  if (!normalises_) return std::string(text);
  return std::string(prepend_ == Prepend::kAlways ? kMark : "") + replaced(text, " ", kMark);
}

void Metaspace::split(std::string_view text, bool first, const Take& take) const {
  if (normalises_) return take(text);
  std::string marked = replaced(text, " ", kMark);
  const bool there = marked.starts_with(kMark);
  if ((prepend_ == Prepend::kWhereNone && !there) ||
      (prepend_ == Prepend::kFirstWhereNone && first && !there)) {
    marked.insert(0, kMark);
  }
  const std::string_view all = marked;
  size_t begin = 0;
  while (splits_ && begin < all.size()) {
    const size_t next = all.find(kMark, begin + 1);
    if (next == std::string_view::npos) break;
    take(all.substr(begin, next - begin));
    begin = next;
  }
  if (begin < all.size()) take(all.substr(begin));
}

std::string Metaspace::bytesOf(std::string_view token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    const long byte = std::strtol(std::string(token.substr(3, 2)).c_str(), nullptr, 16);
    const std::string name = byteTokenName(static_cast<unsigned char>(byte));
    if (name == token) return std::string(1, static_cast<char>(byte));
  }
  return replaced(token, kMark, " ");
}

std::string Metaspace::decoded(std::string text) const {
  if (strips_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace allot
