#pragma once
// Reading the JSON files of a model folder, whose content is hostile until checked.
// Pure functions but for the read; any thread. Private to model/ and to the readers of questions.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Errors (kUsage): not there, not a plain file, larger than max_bytes. The message of a missing
// file begins "the model folder lacks NAME".
Result<std::string> readTextFile(const std::string& path, size_t max_bytes);
// What is wrong with JSON whose brackets are nested deeper than 64 levels, with the member that
// they are in: copying or comparing a value takes a stack frame a level. Looks at the text alone,
// so that nothing is made of it first. No file that we read has more than ten levels.
std::optional<std::string> tooDeep(std::string_view json);

// readTextFile; and an error when it is not JSON, or too deep.
Result<nlohmann::json> readJsonFile(const std::string& path, size_t max_bytes);

// The member of an object; nullptr when it is missing or null.
const nlohmann::json* member(const nlohmann::json& object, const char* key);

// A member that is true or false, `fallback` when missing. Error: it is something else.
Result<bool> boolMember(const nlohmann::json& object, const char* key, bool fallback,
                        const std::string& where);

// The value as an integer of lowest..highest, or nothing.
bool integerIn(const nlohmann::json& value, int64_t lowest, int64_t highest, int64_t& out);

// Text from a file, quoted for a message: ASCII with escapes, cut when long.
std::string inQuotes(std::string_view text);
// A JSON value named for a message: a scalar as written, "an object", "an array".
std::string described(const nlohmann::json& value);

}  // namespace allot
