#pragma once
// The run as people see it: what the page, the report and the terminal show. Pure, any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "aggregator/page/measurements.h"
#include "aggregator/snapshot.h"

namespace allot {

struct RunView {
  // An object: what is shown as it is, names, counts, curves, workers.
  nlohmann::json facts = nlohmann::json::object();
  std::vector<CurvePoint> points;  // what is chosen from, drawn and tabulated
  std::vector<FidelityPoint> fidelity;
  std::vector<FidelityPoint> variance;  // its measure's
  std::vector<VarianceSlope> slopes;
  uint64_t total_budget = 0;  // the policy's, and the method that it decodes with:
  std::string decode = {};    // of these is the headline
};

// now: Unix time, ms. At most about 1000 points of the history are kept, evenly thinned.
RunView runView(const RunSnapshot& snapshot, uint64_t now_unix_ms, const std::string& run_id);

// As one JSON document, which page.js draws. "evaluations" holds every point once; what is chosen
// of them ("lines", "learning", "headline") says their places in it.
nlohmann::json viewJson(const RunView& view);

// Parts of that document, which the report's summary shares.
nlohmann::json cellView(const CurvePoint& point);
nlohmann::json fidelityView(const FidelityPoint& point);
nlohmann::json varianceView(const FidelityPoint& point);
nlohmann::json slopesView(const std::vector<VarianceSlope>& slopes);

}  // namespace allot
