#include "core/evaluation/margin.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/printable.h"
#include "core/words.h"

namespace allot {
namespace {

// Returns a share in points, rounded up to tenths. Its own rounding error does not count.
std::string roundedUp(double share) {
  return pointsText(std::max(0.0, std::ceil(share * 1000 - 1e-9)) / 1000);
}

}  // namespace

MarginVerdict marginVerdict(const PairedDifference& difference, double margin) {
  if (difference.lower95 > -margin) return MarginVerdict::kAsGood;
  return difference.interval.high < 0 ? MarginVerdict::kWorse : MarginVerdict::kNotTold;
}

std::string_view wordOf(MarginVerdict verdict) {
  return wordAt(verdict, {"as-good", "worse", "not-told-apart"});
}

std::string pointsText(double share) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.6g", share * 100);
  return std::string(text.data()) + (std::string_view(text.data()) == "1" ? " point" : " points");
}

std::string marginText(const PairedDifference& difference, double margin) {
  switch (marginVerdict(difference, margin)) {
    case MarginVerdict::kAsGood:
      return "as good to within " + pointsText(margin) +
             (difference.interval.low > 0    ? ", and better"
              : difference.interval.high < 0 ? ", yet worse"
                                             : "");
    case MarginVerdict::kWorse:
      return "worse by at most " + roundedUp(-difference.lower95);
    case MarginVerdict::kNotTold:
      break;
  }
  return "not told apart: may be worse by up to " + roundedUp(-difference.lower95);
}

SmallestAsGood smallestAsGood(const BudgetDifferences& differences, double margin) {
  SmallestAsGood smallest;
  for (auto it = differences.rbegin(); it != differences.rend(); ++it) {
    if (!it->second || marginVerdict(*it->second, margin) != MarginVerdict::kAsGood) {
      smallest.stopped_at = it->first;
      smallest.compared = it->second.has_value();
      break;
    }
    smallest.budget = it->first;
  }
  return smallest;
}

std::vector<AsGoodLine> asGoodLines(const LineDifferences& differences, double margin) {
  std::vector<AsGoodLine> lines;
  for (const auto& [line, by_budget] : differences) {
    lines.push_back({line.first, line.second, smallestAsGood(by_budget, margin)});
  }
  return lines;
}

std::string asGoodText(const std::vector<AsGoodLine>& lines, double margin,
                       const std::string& unit) {
  if (lines.empty()) return "";
  std::string text =
      "smallest total budget that is as good as dense to within " + pointsText(margin) + ":\n";
  for (const AsGoodLine& line : lines) {
    const auto& [budget, stopped_at, compared] = line.smallest;
    text += "  " + printable(line.method, 100) + ", " + printable(line.schedule, 40) + ": " +
            (budget ? std::to_string(*budget) + unit : "none");
    if (stopped_at) {
      text += " (" + std::to_string(*stopped_at) + unit + (budget ? "" : ", the largest,") +
              (compared ? " was not found as good)" : " is not measured yet)");
    }
    text += "\n";
  }
  return text +
         "as good: the one-sided 95 % lower bound of the difference on the same questions is above "
         "minus the margin\n"
         "asked from the largest budget down to the first that is not as good: a fixed-sequence "
         "test, which needs no correction within a line\n";
}

}  // namespace allot
