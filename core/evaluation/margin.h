#pragma once
// What a paired difference says against a margin: as good as a reference, worse, or neither. Pure
// functions, any thread.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/evaluation/score_statistics.h"

namespace allot {

// Differences are in shares of all questions: 0.02 is 2 points.
inline constexpr double kUsualMargin = 0.02;

enum class MarginVerdict {
  kAsGood,  // the one-sided 95 % lower bound of the difference is above -margin
  kWorse,   // not as good, and the 95 % interval of the difference is below 0
  kNotTold  // neither
};
MarginVerdict marginVerdict(const PairedDifference& difference, double margin);
// "as-good", "worse", "not-told-apart"
std::string_view wordOf(MarginVerdict verdict);

// Returns what may stand behind "is": "as good to within 2 points", with ", and better" or ", yet
// worse" if the difference excludes 0; "worse by at most 5.3 points"; "not told apart: may be
// worse by up to 3.1 points". These numbers are lower95, rounded away from 0.
std::string marginText(const PairedDifference& difference, double margin);
// Returns a margin in points, as "2 points" or "0.5 points".
std::string pointsText(double share);

// Differences of one method and schedule to the reference, by total budget; nothing where a budget
// is not compared.
using BudgetDifferences = std::map<uint64_t, std::optional<PairedDifference>>;

// The smallest budget that is as good, by a fixed-sequence test: from the largest budget down, and
// no further than the first that is not as good. Each step is made only if all before it held, so
// that the chance of naming a budget too small is at most the error of one test, without any
// correction (PairedDifference::lower95 says what that is).
struct SmallestAsGood {
  std::optional<uint64_t> budget;      // nothing: the largest is not as good
  std::optional<uint64_t> stopped_at;  // the first that is not as good; nothing: all are
  bool compared = true;                // false: that one has not been compared yet
};
SmallestAsGood smallestAsGood(const BudgetDifferences& differences, double margin);

// The same of several methods and schedules. Each line is a test of its own.
using LineDifferences = std::map<std::pair<std::string, std::string>, BudgetDifferences>;
struct AsGoodLine {
  std::string method, schedule;
  SmallestAsGood smallest;
};
std::vector<AsGoodLine> asGoodLines(const LineDifferences& differences, double margin);
// Returns a heading, a line for each, and the sentence that says what test it is; "" without lines.
// unit: of total budgets, as unitOf() (core/spec/choices.h).
std::string asGoodText(const std::vector<AsGoodLine>& lines, double margin,
                       const std::string& unit = "");

}  // namespace allot
