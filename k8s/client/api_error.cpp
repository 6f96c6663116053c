#include "k8s/client/api_error.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "core/telemetry/log.h"

namespace allot::kube {
namespace {

constexpr size_t kLongestServerText = 2048;
// Seconds; longer waits are cut to this.
constexpr int64_t kLongestRetryAfter = 300;

}  // namespace

Error ApiError::error() const {
  if (code == 409 || code == 410 || code == 429 || code >= 500 || code == 0) {
    return {ErrorCode::kUnavailable, message};
  }
  return {ErrorCode::kUsage, message};
}

std::chrono::seconds cappedRetryAfter(int64_t retry_after) {
  return std::chrono::seconds(std::min(retry_after, kLongestRetryAfter));
}

std::string serverText(std::string_view text) {
  std::string cut(text.substr(0, kLongestServerText));
  // Not in the middle of a character.
  if (text.size() > kLongestServerText) {
    while (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0xc0u) == 0x80) cut.pop_back();
    if (!cut.empty()) cut.pop_back();
    cut += "...";
  }
  return printable(oneLine(cut), kLongestServerText + 8);
}

ApiError errorFromStatus(const nlohmann::json& status, int http_status, std::string_view request) {
  ApiError error;
  const int64_t code = numberAt(status, {"code"});
  error.code = code >= 400 && code < 600 ? static_cast<int>(code) : http_status;
  error.reason = serverText(textAt(status, {"reason"}));
  const std::string text = serverText(textAt(status, {"message"}));
  error.message = std::string(request) + ": " + std::to_string(error.code) +
                  (error.reason.empty() ? "" : " " + error.reason) +
                  (text.empty() ? "" : ": " + text);
  const int64_t wait = numberAt(status, {"details", "retryAfterSeconds"});
  if (wait > 0) error.retry_after = cappedRetryAfter(wait);
  return error;
}

const nlohmann::json* memberAt(const nlohmann::json& object,
                               std::initializer_list<const char*> path) {
  const nlohmann::json* at = &object;
  for (const char* name : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(name);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string textAt(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json* at = memberAt(object, path);
  return at != nullptr && at->is_string() ? at->get<std::string>() : std::string();
}

int64_t numberAt(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json* at = memberAt(object, path);
  return at != nullptr && at->is_number_integer() ? at->get<int64_t>() : 0;
}

}  // namespace allot::kube
