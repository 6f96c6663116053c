// Version, commit and compiler of this build. Any thread.
#pragma once

#include <string>

namespace allot {

// Returns "allot 0.1.0 (commit 196c9970ab, GNU 12.2.0, Release)". It says "unknown commit" if the
// sources are no Git checkout of their own, or git is not installed.
const std::string& buildText();

}  // namespace allot
