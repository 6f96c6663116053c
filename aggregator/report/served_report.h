#pragma once
// The report's files over HTTP. Any thread.
#include <string>

#include "core/telemetry/http_server.h"

namespace allot {

// /report/summary.json and the report's other files, as they lie in `dir` (report.h): how they
// come out of a container without a shell. 404 for everything else, and for what is not there yet.
bool isReportPath(const std::string& path);
HttpReply serveReport(const std::string& path, const std::string& dir);

}  // namespace allot
