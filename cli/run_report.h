#pragma once
// What `allot run` prints at the end, from the summary.json that the aggregator leaves. One thread.
#include <nlohmann/json.hpp>
#include <string>

#include "core/result.h"

namespace allot {

// Accuracies by method and budget, fidelity, and the learned schedule, of such a summary.
std::string reportText(const nlohmann::json& summary);

// How much was done and how long it took: of a sweep, which learns nothing, the time alone.
std::string endText(const nlohmann::json& summary);

// Both to stdout, and to stderr where the report is.
Status printReport(const std::string& folder);

}  // namespace allot
