#pragma once
// Prints the end of `allot run`, from the aggregator's summary.json. One thread.
#include <nlohmann/json.hpp>
#include <string>

#include "core/result.h"

namespace allot {

// Returns accuracies by method and budget, fidelity, and the learned schedule.
std::string reportText(const nlohmann::json& summary);

// Returns the amount of work and its duration; for a sweep, which learns nothing, only the
// duration.
std::string endText(const nlohmann::json& summary);

// Prints both to stdout, and the place of the report to stderr.
Status printReport(const std::string& folder);

}  // namespace allot
