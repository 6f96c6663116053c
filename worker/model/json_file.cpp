#include "worker/model/json_file.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

namespace allot {

Status checkNoLfsPointer(std::string_view content, const std::string& path) {
  if (!content.starts_with("version https://git-lfs")) return {};
  return badInput(path + " is a Git LFS pointer, not the file itself; run git lfs pull there");
}

Result<std::string> readTextFile(const std::string& path, size_t max_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return badInput("the model folder lacks " + fs::path(path).filename().string() +
                    ": there is no file " + path);
  }
  if (!fs::is_regular_file(status)) return badInput(path + " is not a plain file");
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, "cannot read " + path + ": " + error.message());
  if (bytes > max_bytes) {
    return badInput(path + " has " + std::to_string(bytes) + " bytes; at most " +
                    std::to_string(max_bytes) + " are accepted");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kIo, "cannot open " + path);
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (file.gcount() != static_cast<std::streamsize>(bytes)) {
    return fail(ErrorCode::kIo, "cannot read all of " + path);
  }
  ALLOT_TRY(checkNoLfsPointer(text, path));
  return text;
}

Result<nlohmann::json> readJsonFile(const std::string& path, size_t max_bytes) {
  ALLOT_ASSIGN(const std::string text, readTextFile(path, max_bytes));
  return parseJson(text, path);
}

const nlohmann::json* member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<bool> boolMember(const nlohmann::json& object, const char* key, bool fallback,
                        const std::string& where) {
  const nlohmann::json* value = member(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return badInput(where + ": " + key + ": " + described(*value) + " is not true or false");
  }
  return value->get<bool>();
}

bool integerIn(const nlohmann::json& value, int64_t lowest, int64_t highest, int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  const int64_t number = value.get<int64_t>();
  if (number < lowest || number > highest) return false;
  out = number;
  return true;
}

std::string described(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return inQuotes(value.get_ref<const std::string&>());
  return value.dump();
}

std::string describedType(const nlohmann::json& object) {
  const nlohmann::json* type = member(object, "type");
  return type == nullptr ? "(missing)" : described(*type);
}

}  // namespace allot
