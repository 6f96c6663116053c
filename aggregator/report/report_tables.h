#pragma once
// The report's tables: curve.csv, fidelity.csv, variance.csv and summary.json. Pure functions, any
// thread.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aggregator/page/run_view.h"
#include "core/result.h"

namespace allot {

// A row for all questions of each cell (task "all"), then one for each task. Shares of what dense
// attention reads are those of whole cells, and empty where they were not counted.
std::string curveCsv(const std::vector<CurvePoint>& points);

// The points of such a text, each with its tasks, without the differences and what is not in it.
// kData names `place` and the line.
Result<std::vector<CurvePoint>> curvePointsOf(const std::string& csv, const std::string& place);

// A row for each cell (part "all"), then one for each layer, number of tiles, layer and number
// of tiles ("7/3-4"), and task in it.
std::string fidelityCsv(const std::vector<FidelityPoint>& points);
std::string varianceCsv(const std::vector<FidelityPoint>& points);

nlohmann::json summaryJson(const RunView& view);

}  // namespace allot
