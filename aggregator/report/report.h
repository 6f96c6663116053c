#pragma once
// The report of a run: a folder of files that need neither the cluster nor the network to be read.
//
// Stateless functions, any thread; two writers of one folder are the caller's to keep apart.
#include <string>

#include "aggregator/page/run_view.h"
#include "core/result.h"
#include "core/telemetry/http_server.h"

namespace allot {

// Returns the HTML sections of the figures and tables that the live page does not have: accuracy by
// task, against bytes read and with one layer at a single draw; sparse prefills; fidelity;
// variance. Omits those without data; "" if there are none.
std::string figuresHtml(const RunView& view);

// /report/summary.json and the report's other files, as they lie in `dir`: how they
// come out of a container without a shell. 404 for everything else, and for what is not there yet.
bool isReportPath(const std::string& path);
HttpReply serveReport(const std::string& path, const std::string& dir);

// What report.html needs of a browser, as a Content-Security-Policy: all is in the file itself, and
// nothing goes over the network.
inline constexpr const char* kReportLoads =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

// Writes report.html, curve.csv, curve.svg, policy.json, summary.json and, where it was measured,
// fidelity.csv and variance.csv into `dir`, which is made if need be. Each file appears whole or
// not at all. Errors name the file: kIo.
Status writeReport(const std::string& dir, const RunView& view);

// The page, for tests.
Result<std::string> reportHtml(const RunView& view);

}  // namespace allot
