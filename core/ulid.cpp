#include "core/ulid.h"

namespace allot {
namespace {

constexpr std::string_view kAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";  // Crockford's base 32

}  // namespace

std::string makeUlid(uint64_t unix_ms, uint64_t random_high, uint64_t random_low) {
  std::string text(26, '0');
  for (int i = 9; i >= 0; --i, unix_ms >>= 5) text[i] = kAlphabet[unix_ms & 31];
  for (int i = 17; i >= 10; --i, random_high >>= 5) text[i] = kAlphabet[random_high & 31];
  for (int i = 25; i >= 18; --i, random_low >>= 5) text[i] = kAlphabet[random_low & 31];
  return text;
}

bool isUlid(std::string_view text) {
  return text.size() == 26 && text.find_first_not_of(kAlphabet) == std::string_view::npos &&
         text[0] <= '7';
}

uint64_t ulidUnixMs(std::string_view text) {
  if (!isUlid(text)) return 0;
  uint64_t unix_ms = 0;
  for (int i = 0; i < 10; ++i) unix_ms = unix_ms << 5 | kAlphabet.find(text[i]);
  return unix_ms;
}

}  // namespace allot
