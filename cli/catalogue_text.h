#pragma once
// The output of `allot methods` and `allot tasks`. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"

namespace allot {

// Returns all methods: those of decode, then those of prefill alone.
std::vector<kernels::MethodTraits> allMethods();

// Returns every method with its meaning, then the table of parameters.
std::string methodsText();

// Returns the table of methods in docs/reference/methods.md, between its marks "methods".
std::string methodsMarkdown();

// Returns every suite with its tasks, then every grader.
std::string tasksText();
nlohmann::json tasksJson();

}  // namespace allot
