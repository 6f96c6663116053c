#pragma once
// ApiError and Reply<T>: what became of a request to the API server.
//
// What the server said is kept apart (code, reason, message), because callers treat a 404, a 409
// and a 410 differently. Text that came from the server is cut and free of control characters.
// Values; any thread.
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
  // The status of the answer; 0 if there was none that could be used: no connection, a deadline, an
  // answer over the limit, no JSON.
  int code = 0;
  // The server's word for it ("NotFound", "Conflict", "Expired"), or one of ours where code is 0:
  // "Unavailable", "Timeout", "TooLarge", "BadAnswer", "BadRequest", "Interrupted".
  std::string reason;
  // One sentence, which names the request.
  std::string message;
  // How long the server asks to be left alone.
  std::optional<std::chrono::seconds> retry_after;

  bool notFound() const { return code == 404; }
  bool conflict() const { return code == 409; }
  bool expired() const { return code == 410; }
  bool invalid() const { return code == 422; }
  bool tooMany() const { return code == 429; }
  // Nothing that waiting mends: a person has to give us a token or a role.
  bool refused() const { return code == 401 || code == 403; }
  bool interrupted() const { return code == 0 && reason == "Interrupted"; }

  // For callers that tell only core's codes apart.
  Error error() const;
};

template <typename T>
using Reply = tl::expected<T, ApiError>;

inline tl::unexpected<ApiError> noAnswer(std::string reason, std::string message) {
  return tl::unexpected<ApiError>(ApiError{0, std::move(reason), std::move(message), std::nullopt});
}

// The error that a Kubernetes Status object tells of: `request` ("GET /api/v1/...") begins the
// sentence, `http_status` is the code where the object has none.
ApiError errorFromStatus(const nlohmann::json& status, int http_status, std::string_view request);

// What a server asks for by Retry-After, but five minutes at most.
std::chrono::seconds believable(int64_t retry_after);

// Text of a server as part of a sentence: one line, at most 2048 bytes.
std::string serverText(std::string_view text);

// A member of an object, however deep; "" and 0 where it is absent or of another type. For what
// others wrote, which may be anything.
std::string textAt(const nlohmann::json& object, std::initializer_list<const char*> path);
int64_t numberAt(const nlohmann::json& object, std::initializer_list<const char*> path);
// nullptr where there is none.
const nlohmann::json* memberAt(const nlohmann::json& object,
                               std::initializer_list<const char*> path);

}  // namespace allot::kube
