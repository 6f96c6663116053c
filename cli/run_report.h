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

// Returns accuracies, prefill, fidelity, variance and the learned schedule. Throws json::exception
// if a member that it needs is missing or of another type.
std::string reportText(const nlohmann::json& summary);

// Returns updates, episodes, duration and speed; without updates only the duration.
std::string endText(const nlohmann::json& summary);

// Prints reportText() and endText() of the folder's summary.json to stdout, and the path of the
// report to stderr. kInternal if summary.json cannot be read, kUsage if it is no JSON, kData if it
// is no summary.
Status printReport(const std::string& folder);

}  // namespace allot
