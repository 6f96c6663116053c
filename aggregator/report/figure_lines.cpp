#include "aggregator/report/figure_lines.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

namespace allot {
namespace {

// The words of a method's text: its name and its key=value pairs.
std::vector<std::string> wordsOf(const std::string& text) {
  std::vector<std::string> words;
  for (size_t from = 0; from <= text.size();) {
    const size_t space = std::min(text.find(' ', from), text.size());
    words.push_back(text.substr(from, space - from));
    from = space + 1;
  }
  return words;
}

// "epsilon" of "epsilon=0.1"; "" if the value is no number.
std::string numericKey(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return "";
  double value = 0;
  const char* end = word.data() + word.size();
  const auto parsed = std::from_chars(word.data() + equals + 1, end, value);
  return parsed.ec == std::errc() && parsed.ptr == end ? word.substr(0, equals) : "";
}

// A text leaves out what has its default, so that dropping the pair sets the default.
std::string without(const std::string& text, const std::string& key) {
  std::string rest;
  for (const std::string& word : wordsOf(text)) {
    if (numericKey(word) == key) continue;
    rest += (rest.empty() ? "" : " ") + word;
  }
  return rest;
}

}  // namespace

NumberedName nameWithoutNumber(const std::string& method, const std::vector<std::string>& methods) {
  std::set<std::string> keys;
  for (const std::string& other : methods) {
    for (const std::string& word : wordsOf(other)) keys.insert(numericKey(word));
  }
  keys.erase("");
  NumberedName best{method, ""};
  std::ptrdiff_t most = 1;
  for (const std::string& key : keys) {
    const std::string rest = without(method, key);
    const auto alike = std::count_if(methods.begin(), methods.end(), [&](const auto& other) {
      return without(other, key) == rest;
    });
    if (alike > most) {
      most = alike;
      best = {rest, key};
    }
  }
  return best;
}

std::vector<PlotSeries> linesByNumber(const std::vector<Measured>& measured,
                                      const LineStyles& styles) {
  std::map<std::pair<std::string, std::string>, std::set<uint64_t>> budgets;
  for (const Measured& one : measured) {
    budgets[{one.method, one.schedule}].insert(one.total_budget);
  }
  std::map<std::pair<std::string, uint64_t>, std::vector<std::string>> single;  // methods
  for (const auto& [line, values] : budgets) {
    if (values.size() == 1) single[{line.second, *values.begin()}].push_back(line.first);
  }
  std::map<std::tuple<std::string, std::string, uint64_t>, PlotSeries> lines;
  for (const Measured& one : measured) {
    const bool many = budgets[{one.method, one.schedule}].size() > 1;
    const NumberedName name =
        many ? NumberedName{one.method, ""}
             : nameWithoutNumber(one.method, single[{one.schedule, one.total_budget}]);
    const uint64_t budget = many ? 0 : one.total_budget;
    PlotSeries& line = lines[{name.text, one.schedule, budget}];
    if (line.points.empty()) {
      line.name = styles.name(name.text, one.schedule);
      if (!name.parameter.empty()) line.name += ", by " + name.parameter;
      line.style = styles.style(one.method, one.schedule);
    }
    line.points.push_back(one.point);
  }
  std::vector<PlotSeries> series;
  for (auto& [key, line] : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.x < b.x; });
    series.push_back(std::move(line));
  }
  return series;
}

}  // namespace allot
