#pragma once
// JSON from elsewhere: files, and what other programs answer.
//
// What it may make of memory and stack is bounded before anything is made of it: a value takes some
// tens of bytes, whatever its text, and copying, comparing or printing it a stack frame a level.
// Pure functions, any thread. Callers of parseJson include nlohmann/json.hpp.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Levels of brackets, and values in all. No file that we read has more than ten of the one, and
// tokenizers, the largest, have two million of the other.
constexpr int kDeepestJson = 64;
constexpr size_t kMostJsonValues = size_t{1} << 23;

// What is wrong with JSON whose brackets are nested deeper than kDeepestJson, with the member that
// they are in. Looks at the text alone.
std::optional<std::string> tooDeep(std::string_view json);

// The text as a value. kUsage, "PLACE: what is wrong": too deep, too many values, not JSON.
Result<nlohmann::json> parseJson(std::string_view text, const std::string& place);

// Text from a file, quoted for a message: ASCII with escapes, cut when long. Tokens and names of
// model files may be any bytes; for what people write there is doubleQuoted of spec_yaml.h.
std::string inQuotes(std::string_view text);

}  // namespace allot
