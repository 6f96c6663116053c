#pragma once
// Text from elsewhere (names, errors) as it may be shown to people, and times in their words. Pure
// functions, any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Bytes of the well-formed UTF-8 character at text[at] that moves no cursor; 0 if there is none.
size_t printableLength(std::string_view text, size_t at);

// No control characters, no broken UTF-8, at most `longest` bytes.
std::string printable(std::string_view text, size_t longest = 200);

// "2 min 05 s"
std::string duration(double seconds);
// "12 s ago" of two Unix times in ms; "now" where the clocks disagree.
std::string ago(uint64_t then_ms, uint64_t now_ms);

}  // namespace allot
