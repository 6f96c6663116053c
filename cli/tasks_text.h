#pragma once
// What `allot tasks` prints. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

namespace allot {

// Every suite with its tasks, then every grader.
std::string tasksText();
nlohmann::json tasksJson();

}  // namespace allot
