#pragma once
// waitFor: looks every 50 ms until a condition holds; for tests of other processes.
#include <chrono>
#include <functional>
#include <thread>

namespace allot {

// False if it does not hold within so many seconds.
inline bool waitFor(const std::function<bool()>& condition, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace allot
