#pragma once
// Parses JSON from files and from other programs. Pure functions, any thread. Callers of parseJson
// include nlohmann/json.hpp. Levels and values are counted before anything is built: a built value
// takes some tens of bytes beside its text. To copy, compare or print it takes a stack frame for
// each level.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Most levels of brackets, and most values, counted by brackets and commas. Tokenizers have two
// million values.
constexpr int kDeepestJson = 64;
constexpr size_t kMostJsonValues = size_t{1} << 23;

// Returns a sentence if brackets are nested deeper than kDeepestJson; in an object the sentence
// names the outermost member that holds them. Else returns nothing. Builds no values.
std::optional<std::string> tooDeep(std::string_view json);

// Parses the text. kUsage, "PLACE: what is wrong", if it is too deep, has too many values, is not
// JSON, or has an object with a member twice, of which readers take different ones.
Result<nlohmann::json> parseJson(std::string_view text, const std::string& place);

// Returns bytes of a file (tokens, names) quoted for a message: in ASCII with escapes, and with
// "..." after 100 bytes. For texts that people write use doubleQuoted() of spec_yaml.h.
std::string inQuotes(std::string_view text);

}  // namespace allot
