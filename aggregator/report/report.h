#pragma once
// The report of a run: a folder of files that need neither the cluster nor the network to be read.
//
// Stateless functions, any thread; two writers of one folder are the caller's to keep apart.
#include <string>

#include "aggregator/page/run_view.h"
#include "core/result.h"

namespace allot {

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
