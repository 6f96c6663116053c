#pragma once
// What `allot verify` and `allot export` say of what they did. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "store/archive/archive.h"

namespace allot {

// result: equal, not-begun.
nlohmann::json verificationJson(const VerifySummary& summary);
std::string verificationText(const VerifySummary& summary);

nlohmann::json exportJson(const ExportSummary& summary, const std::string& folder);
std::string exportText(const ExportSummary& summary, const std::string& folder);

}  // namespace allot
