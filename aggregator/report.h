#pragma once
// The report of a run: a folder of files that need neither the cluster nor the network to be read.
//
// Stateless functions, any thread; two writers of one folder are the caller's to keep apart.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aggregator/curve_svg.h"
#include "core/result.h"

namespace allot {

// The well-formed rows of view["evaluations"]; others are left out. No interval: low = high =
// accuracy.
std::vector<CurvePoint> evaluationPoints(const nlohmann::json& view);

// A row is complete when it graded as many questions as any row did: all rows of a run share the
// held-out questions, and chunks of them come in one by one.

// For each method and schedule the newest version whose budgets are all complete (while there is
// none: the version with the most): one line of the curve is always one policy.
std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points);

// For each method, schedule and budget the newest complete row, or the newest one if none is.
std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points);

// Writes report.html, curve.csv, curve.svg, policy.json and summary.json into `dir`, which is made
// if need be. Each file appears whole or not at all. `view` is the document of GET /api/run. Errors
// name the file: kIo.
Status writeReport(const std::string& dir, const nlohmann::json& view);

// The parts, for tests and other commands.
Result<std::string> reportHtml(const nlohmann::json& view);
std::string curveCsv(const std::vector<CurvePoint>& points);

}  // namespace allot
