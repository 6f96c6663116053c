#pragma once
// The run as one JSON document: what the page, the report and the terminal show. Pure, any thread.
#include <nlohmann/json.hpp>

#include <vector>

#include "aggregator/learner/aggregator.h"

namespace allot {

// now: Unix time, ms. At most about 1000 points of the history are kept, evenly thinned.
nlohmann::json runView(const RunSnapshot& snapshot, uint64_t now_unix_ms,
                       const std::string& run_id);

// What to compare the reward of each of these updates with by eye: the moving average of those
// before it. (The mean of a batch's leave-one-out baselines is the batch's own mean and would show
// nothing.)
std::vector<double> shownBaselines(const std::vector<v1::IterationRecord>& history);

}  // namespace allot
