#pragma once
// Formats a time as Kubernetes' MicroTime, "2026-01-31T12:00:00.000123Z". Pure; any thread.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>

namespace allot::kube {

using WallTime = std::chrono::system_clock::time_point;
using WallClock = std::function<WallTime()>;
inline WallClock systemClock() {
  return [] { return std::chrono::system_clock::now(); };
}

inline std::string microTime(WallTime time) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(since / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[48];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof text - size, ".%06dZ", static_cast<int>(since % 1'000'000));
  return text;
}

}  // namespace allot::kube
