#pragma once
// The run as one JSON document: what the page, the report and the terminal show. Pure, any thread.
#include <nlohmann/json.hpp>

#include "aggregator/aggregator.h"

namespace allot {

// now: Unix time, ms. At most about 1000 points of the history are kept, evenly thinned.
nlohmann::json runView(const RunSnapshot& snapshot, uint64_t now_unix_ms,
                       const std::string& run_id);

}  // namespace allot
