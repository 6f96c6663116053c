#include "core/spec/step_times.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

constexpr size_t kMostTimes = 64;

template <typename Number>
std::optional<Number> numberOf(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

}  // namespace

double StepTimes::at(uint32_t reads) const {
  double most = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const auto& [count, time] = of[i];
    if (count > reads) {
      const auto& [less, before] = of[i - 1];
      const double way = static_cast<double>(reads - less) / (count - less);
      return std::max(most, before + way * (time - before));
    }
    most = std::max(most, time);
  }
  return most;
}

Result<StepTimes> parseStepTimes(const std::string& text, const std::string& place) {
  const auto refuse = [&](const std::string& what) {
    return badInput(place + ": " + what + "; write the times as in dense 711, 8 132, 128 144");
  };
  StepTimes times;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = trimmed(rest.substr(0, comma));
    if (comma + 1 == rest.size()) return refuse("there is a comma at the end");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t space = std::min(entry.find(' '), entry.size());
    const std::string_view name = entry.substr(0, space);
    const auto time = numberOf<double>(trimmed(entry.substr(space)));
    if (!time || !(*time > 0) || !std::isfinite(*time)) {
      return refuse(doubleQuoted(std::string(entry)) +
                    " is no number of reads, or dense, with microseconds");
    }
    if (name == "dense") {
      if (times.dense > 0) return refuse("dense has two times");
      times.dense = *time;
      continue;
    }
    const auto reads = numberOf<uint32_t>(name);
    if (!reads || *reads == 0 || *reads >= kMaxBudget) {
      return refuse(doubleQuoted(std::string(name)) +
                    " is neither dense nor a number of reads below " + std::to_string(kMaxBudget));
    }
    if (!times.of.empty() && *reads <= times.of.back().first) {
      return refuse("the numbers of reads do not rise at " + std::to_string(*reads));
    }
    times.of.emplace_back(*reads, *time);
  }
  if (times.dense == 0) return refuse("dense attention has no time");
  if (times.of.empty()) return refuse("no number of reads has a time");
  if (times.of.size() > kMostTimes) {
    return refuse("more than " + std::to_string(kMostTimes) + " numbers of reads have a time");
  }
  return times;
}

}  // namespace allot
