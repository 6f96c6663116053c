#pragma once
// What a report shows beyond the live page: accuracy by task, against the KV cache read and by
// layer, fidelity and variance. Pure functions, any thread.
#include <string>

#include "aggregator/page/run_view.h"

namespace allot {

// Sections of HTML for the report's page, each only where the view has something for it.
std::string figuresHtml(const RunView& view);

}  // namespace allot
