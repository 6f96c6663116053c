#pragma once
// What `allot methods` and `allot tasks` print. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"

namespace allot {

// All methods: those of decode, then those of prefill alone.
std::vector<kernels::MethodTraits> allMethods();

// One sentence on a method of kernels::methodNames(); "" for a name that is not there.
std::string_view methodMeaning(std::string_view name);

// Every method with its meaning, then the table of parameters.
std::string methodsText();

// The table of methods in docs/reference/methods.md, between its marks "methods".
std::string methodsMarkdown();

// Every suite with its tasks, then every grader.
std::string tasksText();
nlohmann::json tasksJson();

}  // namespace allot
