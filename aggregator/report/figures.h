#pragma once
// The figures and tables of a report that the live page does not have: accuracy by task, against
// bytes read and with one layer at a single draw; sparse prefills; fidelity; variance. Pure
// function, any thread.
#include <string>

#include "aggregator/page/run_view.h"

namespace allot {

// Returns the HTML sections of these figures and tables. Omits those without data; "" if there are
// none.
std::string figuresHtml(const RunView& view);

}  // namespace allot
