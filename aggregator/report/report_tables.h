#pragma once
// The report's tables: curve.csv, fidelity.csv, variance.csv and summary.json. Pure functions, any
// thread.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aggregator/page/run_view.h"
#include "core/result.h"

namespace allot {

// Returns a row for each point (task "all"), then a row for each task of each point. In the latter
// all columns behind the task are empty, except repeats, interval and price.
// unit: of total budgets, as unitOf() (core/spec/choices.h).
std::string curveCsv(const std::vector<CurvePoint>& points, const std::string& unit = "");

// Reads points with their tasks from a text that curveCsv() made: method, schedule, budget,
// version, n, accuracy, interval, prefill, and the shares of KV bytes, key bytes and prefill
// blocks. kData names `place`, the line and the column without a number.
Result<std::vector<CurvePoint>> curvePointsOf(const std::string& csv, const std::string& place);

// Returns the unit of the total budgets in a text that curveCsv() made. Without a column price, as
// earlier versions wrote it, that is reads.
std::string curveUnitOf(const std::string& csv);

// Return a row for each point (part "all"), then rows for each point's parts: layers, numbers of
// tiles, layers by number of tiles ("7/3-4"), and tasks.
std::string fidelityCsv(const std::vector<FidelityPoint>& points);
std::string varianceCsv(const std::vector<FidelityPoint>& points);

// Returns the smallest budgets that are as good as dense to within the view's margin, of the newest
// complete points of each method and schedule with a budget.
std::vector<AsGoodLine> asGoodLines(const RunView& view);

nlohmann::json summaryJson(const RunView& view);

}  // namespace allot
