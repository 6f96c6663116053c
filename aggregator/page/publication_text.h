#pragma once
// Says in words why schedules are published. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

namespace allot {

// Returns what is known of the published schedule in a row of the view's "frontier": its claim, or
// that it is a guess. "" if the learner claims nothing.
std::string publicationText(const nlohmann::json& row);

// Returns what is published at each total budget, in one line; "" if the learner claims nothing.
// unit: of total budgets, as unitOf() (core/spec/choices.h).
std::string publicationsText(const nlohmann::json& frontier, const std::string& unit);

}  // namespace allot
