#pragma once
// Parses JSON from files and from other programs. Pure functions, any thread. Callers of parseJson
// include nlohmann/json.hpp.
//
// Its use of memory and stack is bounded before anything is built. A value takes some tens of bytes
// for any text. Copying, comparing or printing it takes a stack frame for each level.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Limits of levels of brackets, and of values. Our files have at most ten levels. Tokenizers, the
// largest, have two million values.
constexpr int kDeepestJson = 64;
constexpr size_t kMostJsonValues = size_t{1} << 23;

// Returns an error text for JSON whose brackets are nested deeper than kDeepestJson, with the
// member that they are in. Reads only the text.
std::optional<std::string> tooDeep(std::string_view json);

// Parses the text. kUsage, "PLACE: what is wrong": too deep, too many values, not JSON.
Result<nlohmann::json> parseJson(std::string_view text, const std::string& place);

// Quotes text from a file for a message: ASCII with escapes, cut if long. Tokens and names of model
// files may be any bytes. For texts that people write use doubleQuoted() of spec_yaml.h.
std::string inQuotes(std::string_view text);

}  // namespace allot
