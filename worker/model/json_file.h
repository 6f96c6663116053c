#pragma once
// Reading the JSON files of a model folder, whose content is hostile until checked.
// Pure functions but for the read; any thread. Private to worker/model/ and to the readers of
// questions.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/json_text.h"
#include "core/result.h"

namespace allot {

// Errors (kUsage): not there, not a plain file, larger than max_bytes. The message of a missing
// file begins "the model folder lacks NAME".
Result<std::string> readTextFile(const std::string& path, size_t max_bytes);

// readTextFile and parseJson.
Result<nlohmann::json> readJsonFile(const std::string& path, size_t max_bytes);

// The member of an object; nullptr when it is missing or null.
const nlohmann::json* member(const nlohmann::json& object, const char* key);

// A member that is true or false, `fallback` when missing. Error: it is something else.
Result<bool> boolMember(const nlohmann::json& object, const char* key, bool fallback,
                        const std::string& where);

// The value as an integer of lowest..highest, or nothing.
bool integerIn(const nlohmann::json& value, int64_t lowest, int64_t highest, int64_t& out);

// A JSON value named for a message: a scalar as written, "an object", "an array".
std::string described(const nlohmann::json& value);

}  // namespace allot
