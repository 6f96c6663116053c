#pragma once
// The run's page: what its paths answer. Any thread.
#include <cstdint>
#include <string>

#include "core/telemetry/http_server.h"

namespace allot {

// The view as it is served: with the present moment and, if nothing newer can be had, the reason.
// Pure.
std::string servedView(const std::string& view_json, uint64_t now_unix_ms, const std::string& away);

// Where the run's view is asked for.
inline constexpr char kViewPath[] = "/api/run";

// Where its status is (status_document.h).
inline constexpr char kStatusPath[] = "/api/status";

// / and its parts and /api/run (`view_json`, as it is); 404 for everything else.
// Pure.
HttpReply servePage(const std::string& path, const std::string& view_json);

}  // namespace allot
