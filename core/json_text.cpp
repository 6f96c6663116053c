#include "core/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

namespace allot {
namespace {

constexpr size_t kLongestQuote = 100;

// Returns the index after the string that begins with the quote at `at`.
size_t endOfText(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\';
  return std::min(at + 1, json.size());
}

struct Extent {
  bool too_deep = false;
  std::string_view member;  // the last string at level 1
  size_t values = 1;        // an upper bound, up to the place where the text is too deep
};

Extent extentOf(std::string_view json) {
  Extent extent;
  int depth = 0;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      const size_t end = endOfText(json, at);
      if (depth == 1) extent.member = json.substr(at + 1, std::max(end, at + 2) - at - 2);
      at = end - 1;
    } else if (c == '[' || c == '{') {
      ++extent.values;
      if (++depth > kDeepestJson) {
        extent.too_deep = true;
        return extent;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++extent.values;
    }
  }
  return extent;
}

std::string deepSentence(const Extent& extent) {
  return (extent.member.empty() ? "it" : inQuotes(extent.member)) + " is nested deeper than " +
         std::to_string(kDeepestJson) + " levels";
}

// Returns where an error is, as the end of a sentence. `byte` counts from 1.
std::string errorPlace(std::string_view text, size_t byte) {
  if (byte > text.size()) return ": it ends too early";
  const std::string_view before = text.substr(0, byte - std::min<size_t>(byte, 1));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::string column =
      "column " + std::to_string(before.size() - (before.rfind('\n') + 1) + 1);
  return " at " + (lines == 0 ? column : "its line " + std::to_string(lines + 1) + ", " + column);
}

}  // namespace

std::optional<std::string> tooDeep(std::string_view json) {
  const Extent extent = extentOf(json);
  if (!extent.too_deep) return std::nullopt;
  return deepSentence(extent);
}

Result<nlohmann::json> parseJson(std::string_view text, const std::string& place) {
  const Extent extent = extentOf(text);
  if (extent.too_deep) return badInput(place + ": " + deepSentence(extent));
  if (extent.values > kMostJsonValues) {
    return badInput(place + ": has more than the " + std::to_string(kMostJsonValues) +
                    " values that are read");
  }
  using nlohmann::json;
  std::vector<std::unordered_set<std::string>> members;  // of each open object
  std::optional<std::string> twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) members.emplace_back();
    if (event == json::parse_event_t::object_end) members.pop_back();
    if (event == json::parse_event_t::key && !members.back().insert(parsed).second) twice = parsed;
    return true;
  };
  try {
    json value = json::parse(text, watch);
    if (twice) return badInput(place + ": has " + inQuotes(*twice) + " twice; remove one");
    return value;
  } catch (const json::parse_error& error) {
    return badInput(place + ": is not JSON" + errorPlace(text, error.byte));
  } catch (const json::exception&) {
    return badInput(place + ": has a number that is too large; at most 1.7e308 is read");
  }
}

std::string inQuotes(std::string_view text) {
  const bool cut = text.size() > kLongestQuote;
  // Replaces bytes that are not UTF-8: the cut may fall inside a character.
  std::string result =
      nlohmann::json(text.substr(0, kLongestQuote))
          .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (cut) result.insert(result.size() - 1, "...");
  return result;
}

}  // namespace allot
