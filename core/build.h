// What a program says it is.
#pragma once

#include <string>

namespace allot {

// "allot 0.1.0 (commit 196c9970ab, GNU 12.2.0, Release)"; "unknown commit" where the sources are in
// no Git repository.
const std::string& buildText();

}  // namespace allot
