#pragma once
// Reads the JSON files of a model folder, whose content is hostile until checked. Any thread.
// Private to worker/model/ and to the readers of questions.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/json_text.h"
#include "core/result.h"

namespace allot {

// kUsage if the content of a file is what Git LFS puts in the place of a large file.
Status checkNoLfsPointer(std::string_view content, const std::string& path);

// Reads a file. kUsage: missing, not a plain file, larger than max_bytes, a Git LFS pointer. kIo:
// it cannot be read. The message of a missing file begins with "the model folder lacks NAME".
Result<std::string> readTextFile(const std::string& path, size_t max_bytes);

// Does readTextFile() and parseJson().
Result<nlohmann::json> readJsonFile(const std::string& path, size_t max_bytes);

// Returns the member of an object; nullptr if it is missing or null.
const nlohmann::json* member(const nlohmann::json& object, const char* key);

// Returns true if the object has the member, with this value.
template <typename T>
bool memberIs(const nlohmann::json& object, const char* key, const T& value) {
  const nlohmann::json* found = member(object, key);
  return found != nullptr && *found == value;
}

// Returns a boolean member, or `fallback` if it is missing. Error: it is not a boolean.
Result<bool> boolMember(const nlohmann::json& object, const char* key, bool fallback,
                        const std::string& where);

// Returns true and sets `out` if the value is an integer of lowest..highest.
bool integerIn(const nlohmann::json& value, int64_t lowest, int64_t highest, int64_t& out);

// Describes a JSON value for a message: a scalar as written, "an object", "an array".
std::string described(const nlohmann::json& value);

// Describes the member "type" of an object: "(missing)" without one.
std::string describedType(const nlohmann::json& object);

}  // namespace allot
