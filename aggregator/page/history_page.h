#pragma once
// The page of many runs: a list, and the curves of those that are chosen. Pure, any thread.
#include <string>

#include "core/telemetry/http_server.h"

namespace allot {

// / and its parts; 404 for everything else. The page asks for /api/runs, and of each run for what
// page.h serves, below /run/ID/.
HttpReply serveHistoryPage(const std::string& path);

}  // namespace allot
