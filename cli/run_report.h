#pragma once
// What `allot run` prints at the end, from the summary.json that the aggregator leaves. One thread.
#include <string>

#include "core/result.h"

namespace allot {

// The table of accuracies, the learned schedule, where the report is.
Status printReport(const std::string& folder);

}  // namespace allot
