#pragma once
// The process's clocks, in milliseconds. Any thread.
#include <chrono>
#include <cstdint>

namespace allot {

inline uint64_t unixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

inline uint64_t steadyMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace allot
