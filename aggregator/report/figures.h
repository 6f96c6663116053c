#pragma once
// What a report shows beyond the live page: accuracy by task, against the KV cache read and by
// layer, and fidelity. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

namespace allot {

// Sections of HTML for the report's page, each only where the view has something for it.
std::string figuresHtml(const nlohmann::json& view);

}  // namespace allot
