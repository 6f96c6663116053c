#pragma once
// ULIDs: 26 characters, 48 bits of time (ms) then 80 random bits, sortable by creation.
// makeUlid may be called from any thread.
#include <cstdint>
#include <string>
#include <string_view>

namespace allot {

// Takes 40 bits of each number.
std::string makeUlid(uint64_t unix_ms, uint64_t random_high, uint64_t random_low);
bool isUlid(std::string_view text);
// When it was made; 0 if it is none.
uint64_t ulidUnixMs(std::string_view text);

}  // namespace allot
