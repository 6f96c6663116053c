#pragma once
// FUZZ_KINDS=sg: only inputs that begin with one of these letters, so that a quick reader does not
// take a slow one's time. Any thread.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace allot::fuzz {

inline bool isWanted(const uint8_t* data, size_t size) {
  static const char* const kinds = std::getenv("FUZZ_KINDS");
  return !kinds || size == 0 ||
         std::string_view(kinds).find(static_cast<char>(data[0])) != std::string_view::npos;
}

}  // namespace allot::fuzz
