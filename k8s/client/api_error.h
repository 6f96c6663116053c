#pragma once
// ApiError and Reply<T>: the outcome of a request to the API server. Values; any thread.
//
// The server's code, reason and message are separate, because callers treat a 404, a 409 and a 410
// differently. Text from the server is shortened and has no control characters.
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "core/result.h"

namespace allot::kube {

struct ApiError {
  // The HTTP status; 0 if there was no usable answer: no connection, a deadline, an answer over the
  // limit, no JSON.
  int code = 0;
  // The server's reason ("NotFound", "Conflict", "Expired"), or if code is 0 one of "Unavailable",
  // "Timeout", "TooLarge", "BadAnswer", "BadRequest", "Untrusted", "Interrupted". Empty for an
  // answer that is no Status.
  std::string reason;
  std::string message;  // one sentence
  // The time that the server asks clients to wait.
  std::optional<std::chrono::seconds> retry_after;

  bool notFound() const { return code == 404; }
  bool conflict() const { return code == 409; }
  bool expired() const { return code == 410; }
  bool invalid() const { return code == 422; }
  // Returns true if waiting does not help: a person has to provide a token or a role.
  bool refused() const { return code == 401 || code == 403; }
  bool interrupted() const { return code == 0 && reason == "Interrupted"; }

  // Returns kUnavailable for codes 0, 409, 410, 429 and from 500 on; kUsage for others.
  Error error() const;
};

template <typename T>
using Reply = tl::expected<T, ApiError>;

inline tl::unexpected<ApiError> noAnswer(std::string reason, std::string message) {
  return tl::unexpected<ApiError>(ApiError{0, std::move(reason), std::move(message), std::nullopt});
}

// Converts a Kubernetes Status object. `request` ("GET /api/v1/...") begins the sentence.
// `http_status` is the code if the object has none from 400 to 599.
ApiError errorFromStatus(const nlohmann::json& status, int http_status, std::string_view request);

// Returns the seconds for which a server asks to wait, at most five minutes.
std::chrono::seconds cappedRetryAfter(int64_t retry_after);

// Returns a server's text for use in a sentence: one printable line, cut after 2048 bytes.
std::string serverText(std::string_view text);

// Return a member of a foreign object at any depth; "" and 0 if it is absent or of another type.
std::string textAt(const nlohmann::json& object, std::initializer_list<const char*> path);
int64_t numberAt(const nlohmann::json& object, std::initializer_list<const char*> path);
// Returns the member at this path; nullptr if there is none.
const nlohmann::json* memberAt(const nlohmann::json& object,
                               std::initializer_list<const char*> path);

}  // namespace allot::kube
