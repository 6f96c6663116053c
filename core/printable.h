#pragma once
// Makes foreign text (names, errors) printable, and writes times as text. Pure functions, any
// thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Returns the bytes of the well-formed UTF-8 character at text[at] that moves no cursor; 0 if there
// is none.
size_t printableLength(std::string_view text, size_t at);

// Returns text without control characters and broken UTF-8, of at most `longest` bytes.
std::string printable(std::string_view text, size_t longest = 200);

// Returns "2 min 05 s".
std::string duration(double seconds);
// Returns "12 s ago" for two Unix times in ms; "now" if then_ms is later or under 0.5 s ago.
std::string ago(uint64_t then_ms, uint64_t now_ms);

}  // namespace allot
