#pragma once
// The reports of `allot run`, from the aggregator's summary.json, and of `allot verify` and `allot
// export`. Pure functions, any thread, except printReport().
#include <nlohmann/json.hpp>
#include <string>

#include "core/result.h"
#include "store/archive/archive.h"

namespace allot {

// Returns a document whose result is "equal" or "not-begun".
nlohmann::json verificationJson(const VerifySummary& summary);
std::string verificationText(const VerifySummary& summary);

nlohmann::json exportJson(const ExportSummary& summary, const std::string& folder);
std::string exportText(const ExportSummary& summary, const std::string& folder);

// Returns accuracies by method and budget, fidelity, and the learned schedule.
std::string reportText(const nlohmann::json& summary);

// Returns the amount of work and its duration; for a sweep, which learns nothing, only the
// duration.
std::string endText(const nlohmann::json& summary);

// Prints both to stdout, and the place of the report to stderr.
Status printReport(const std::string& folder);

}  // namespace allot
