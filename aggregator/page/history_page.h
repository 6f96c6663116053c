#pragma once
// The page of many runs: a list, and the curves of the chosen runs. Pure, any thread.
#include <string>

#include "core/telemetry/http_server.h"

namespace allot {

// Serves / and its parts; 404 for everything else. The page reads /api/runs, and for each run the
// paths of page.h below /run/ID/.
HttpReply serveHistoryPage(const std::string& path);

}  // namespace allot
