#pragma once
// The run's page: the replies to its paths. Pure functions, any thread.
#include <cstdint>
#include <string>

#include "core/telemetry/http_server.h"

namespace allot {

// Returns the view as served: with the current time and, if it is not current, the reason.
std::string servedView(const std::string& view_json, uint64_t now_unix_ms, const std::string& away);

// The path of the run's view.
inline constexpr char kViewPath[] = "/api/run";

// The path of its status (status_document.h).
inline constexpr char kStatusPath[] = "/api/status";

// Serves / and its parts, and /api/run (`view_json` as given); 404 for everything else.
HttpReply servePage(const std::string& path, const std::string& view_json);

}  // namespace allot
