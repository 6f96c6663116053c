#pragma once
// ULIDs: 26 characters, 48 bits of time (ms) then 80 random bits, sortable by that time. Pure
// functions, any thread.
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Makes a ULID with the low 40 bits of each random number.
// Requires: unix_ms < 2^48.
std::string makeUlid(uint64_t unix_ms, uint64_t random_high, uint64_t random_low);
bool isUlid(std::string_view text);
// Returns the ULID's time in Unix ms; 0 if the text is no ULID.
uint64_t ulidUnixMs(std::string_view text);

}  // namespace allot
