#pragma once
// Tells a machine without a GPU, where GPU tests skip, from a GPU that cannot be used, where they
// fail. Any thread.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace allot {

// Returns true if the machine has an NVIDIA GPU that CUDA_VISIBLE_DEVICES does not hide.
inline bool seesGpu() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible && (*visible == '\0' || *visible == '-')) return false;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 && std::isdigit(name[6])) return true;
  }
  return false;
}

// Skips the test if there is no GPU, and fails it if one cannot be used for the reason given.
inline void requireGpu(const std::optional<std::string>& why_not) {
  if (!why_not) return;
  ASSERT_FALSE(seesGpu()) << *why_not;
  GTEST_SKIP() << *why_not;
}

}  // namespace allot
