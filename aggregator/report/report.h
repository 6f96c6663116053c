#pragma once
// The report of a run: a folder of files that need neither the cluster nor the network to be read.
// Stateless functions, any thread.
// Requires: one folder has one writer at a time.
#include <map>
#include <string>

#include "aggregator/page/run_view.h"
#include "core/result.h"
#include "core/telemetry/http_server.h"

namespace allot {

// Returns the HTML sections that a report has beside the page's. They show accuracy by task,
// against bytes read, and with one layer at a single draw; sparse prefills; fidelity; variance.
// Omits sections with too little data; "" if none is left.
std::string figuresHtml(const RunView& view);

// Returns true for paths below /report/.
bool isReportPath(const std::string& path);
// Serves /report/summary.json and the other files of the report from `dir`, for people whose
// container has no shell. 404: another path, a file that is not there yet, or dir "".
HttpReply serveReport(const std::string& path, const std::string& dir);

// The Content-Security-Policy of report.html and of the files that serveReport() serves: nothing is
// loaded over the network.
inline constexpr const char* kReportLoads =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

// Writes report.html, curve.csv, curve.svg, policy.json, summary.json and, if they were measured,
// fidelity.csv and variance.csv into `dir`, which is made if need be. Each file appears whole or
// not at all. kIo names the file or the folder; kInternal: a fault of the program.
Status writeReport(const std::string& dir, const RunView& view);

// Returns the texts of these files, by name, except report.html.
std::map<std::string, std::string> reportFiles(const RunView& view);

// Returns report.html; public for tests.
Result<std::string> reportHtml(const RunView& view);

}  // namespace allot
