#pragma once
// Makes foreign text (names, errors) printable, and writes times as text. Pure functions, any
// thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Returns the length in bytes of the UTF-8 character at text[at]; 0 for a malformed one, a control
// character, a line separator or a mark of text direction.
// Requires: at < text.size().
size_t printableLength(std::string_view text, size_t at);

// Returns the text with '?' for each byte of a character of length 0 (printableLength). If the
// result exceeds `longest` bytes, it is cut to at most that many and "..." is added.
std::string printable(std::string_view text, size_t longest = 200);
// Returns the text as printable() does, but with "..." in the place of its middle if it is longer:
// about `longest` bytes, of the beginning and the end.
std::string withoutMiddle(std::string_view text, size_t longest);

// Returns "12 s", "2 min 05 s" or "3 h 07 min"; "0 s" for a negative time.
std::string duration(double seconds);
// Returns "12 s ago" for two Unix times in ms; "now" if then_ms is later or under 0.5 s ago.
std::string ago(uint64_t then_ms, uint64_t now_ms);

}  // namespace allot
