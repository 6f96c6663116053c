#pragma once
// UTF-8, one character at a time. Pure functions; any thread.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allot {

// Returns the length in bytes of the character at the beginning of the text, 1..4. Returns 0 if the
// text begins with none: end of text, a stray or missing continuation byte, an overlong form, a
// surrogate, above U+10FFFF.
inline size_t utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i, unsigned lowest = 0x80, unsigned highest = 0xbf) {
    return i < text.size() && byte(i) >= lowest && byte(i) <= highest;
  };
  if (text.empty()) return 0;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (lead < 0xe0) return continues(1) ? 2 : 0;
  if (lead < 0xf0) {
    const unsigned lowest = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned highest = lead == 0xed ? 0x9f : 0xbf;
    return continues(1, lowest, highest) && continues(2) ? 3 : 0;
  }
  const unsigned lowest = lead == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = lead == 0xf4 ? 0x8f : 0xbf;
  return continues(1, lowest, highest) && continues(2) && continues(3) ? 4 : 0;
}

// Returns true for a byte that is not the first of its character.
inline bool continuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// Returns the code point of one character.
// Requires: utf8Length(character) is character.size() and above 1.
inline uint32_t utf8Code(std::string_view character) {
  uint32_t code = static_cast<unsigned char>(character[0]) & (0x7fu >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<uint32_t>(c) & 0x3fu);
  return code;
}

}  // namespace allot
