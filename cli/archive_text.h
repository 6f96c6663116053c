#pragma once
// The reports of `allot verify` and `allot export`. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "store/archive/archive.h"

namespace allot {

// Returns a document whose result is "equal" or "not-begun".
nlohmann::json verificationJson(const VerifySummary& summary);
std::string verificationText(const VerifySummary& summary);

nlohmann::json exportJson(const ExportSummary& summary, const std::string& folder);
std::string exportText(const ExportSummary& summary, const std::string& folder);

}  // namespace allot
