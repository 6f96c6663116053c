#include "worker/model/nfc.h"

#include <algorithm>
#include <cassert>

#include "core/utf8.h"

#if ALLOT_UTF8PROC
#include <utf8proc.h>

#include <vector>
#endif

namespace allot {

bool mayChangeInNfc(std::string_view text) {
  // U+0300 is cc 80.
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
}

#if ALLOT_UTF8PROC

namespace {

int combiningClass(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Appends the full canonical decomposition of a character.
void decompose(utf8proc_int32_t character, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[8];  // Unicode's longest has 4
  int boundary = 0;
  const auto count = utf8proc_decompose_char(
      character, parts, 8, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE),
      &boundary);
  assert(count >= 0 && count <= 8);
  out.insert(out.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 8));
}

// Sorts combining characters behind each starter by their class. utf8proc's function exchanges
// neighbours, which takes quadratic time on hostile text.
void reorder(std::vector<utf8proc_int32_t>& characters) {
  const auto starts = [](utf8proc_int32_t c) { return combiningClass(c) == 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if_not(begin, characters.end(), starts);
    const auto end = std::find_if(begin, characters.end(), starts);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combiningClass(a) < combiningClass(b);
    });
    begin = end;
  }
}

// Appends the NFC of valid UTF-8.
void appendNfc(std::string_view text, std::string& out) {
  if (!mayChangeInNfc(text)) {
    out += text;
    return;
  }
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t character = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(text.size()), &character);
    assert(bytes > 0);
    decompose(character, characters);
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  reorder(characters);
  const auto count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  assert(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto length = utf8proc_encode_char(characters[static_cast<size_t>(i)], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  }
}

}  // namespace

bool nfcAvailable() { return true; }

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t valid = 0;  // bytes of UTF-8 that the text begins with
  while (valid < text.size()) {
    const size_t bytes = utf8Length(text.substr(valid));
    valid += bytes;
    if (bytes > 0) continue;
    appendNfc(text.substr(0, valid), out);
    out += text[valid];
    text.remove_prefix(valid + 1);
    valid = 0;
  }
  appendNfc(text, out);
  return out;
}

namespace {

bool isCased(utf8proc_int32_t character) {
  const utf8proc_category_t category = utf8proc_category(character);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

// Returns true for characters that do not end a word in the rule of the final sigma: marks,
// modifiers, and punctuation within words.
bool isIgnored(utf8proc_int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:\u00b7\u2018\u2019\u2024\u2027")
                 .find(static_cast<char32_t>(character)) != std::u32string_view::npos;
  }
}

// Returns true if the sigma at `at` follows a cased letter and none follows it. Ignored characters
// between them do not count.
bool isFinal(const std::vector<utf8proc_int32_t>& text, size_t at) {
  size_t before = at, after = at + 1;
  while (before > 0 && isIgnored(text[before - 1])) --before;
  if (before == 0 || !isCased(text[before - 1])) return false;
  while (after < text.size() && isIgnored(text[after])) ++after;
  return after == text.size() || !isCased(text[after]);
}

void append(utf8proc_int32_t character, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(character, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

}  // namespace

bool isLetterOrNumber(uint32_t character) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

std::string lowerCase(std::string_view text) {
  constexpr utf8proc_int32_t kDottedI = 0x130, kDotAbove = 0x307;
  constexpr utf8proc_int32_t kSigma = 0x3a3, kFinalSigma = 0x3c2;
  // A byte that is no character stands as a negative number.
  std::vector<utf8proc_int32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8Length(text.substr(at));
    utf8proc_int32_t character = -1 - static_cast<unsigned char>(text[at]);
    if (bytes > 0) {
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                       static_cast<utf8proc_ssize_t>(bytes), &character);
    }
    characters.push_back(character);
    at += std::max<size_t>(bytes, 1);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < characters.size(); ++i) {
    const utf8proc_int32_t c = characters[i];
    if (c < 0) {
      out += static_cast<char>(-1 - c);
    } else if (c == kDottedI) {
      append('i', out);
      append(kDotAbove, out);
    } else {
      append(c == kSigma && isFinal(characters, i) ? kFinalSigma : utf8proc_tolower(c), out);
    }
  }
  return out;
}

bool isWordCharacter(uint32_t character) {
  // Rust's \w. Of Other_Alphabetic only circled and squared letters are no letters or marks.
  const auto within = [&](uint32_t first, uint32_t last) {
    return character >= first && character <= last;
  };
  if (within(0x200c, 0x200d) || within(0x24b6, 0x24e9) || within(0x1f130, 0x1f149) ||
      within(0x1f150, 0x1f169) || within(0x1f170, 0x1f189)) {
    return true;
  }
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

#else

bool nfcAvailable() { return false; }

bool isWordCharacter(uint32_t /*character*/) { return false; }

bool isLetterOrNumber(uint32_t /*character*/) { return true; }

std::string lowerCase(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  return low;
}

std::string nfc(std::string_view text) {
  assert(!"nfc without libutf8proc");
  return std::string(text);
}

#endif

}  // namespace allot
