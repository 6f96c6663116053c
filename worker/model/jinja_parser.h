#pragma once
// Reads a chat template into steps. Private to worker/model/. Pure; any thread.
#include <string_view>

#include "worker/model/jinja_run.h"

namespace allot::jinja {

// Throws Fault, with its line, for what is not Jinja or no form of it that is read here.
Code parseTemplate(std::string_view source);

}  // namespace allot::jinja
