// Version, commit and compiler of this build. Any thread.
#pragma once

#include <string>

namespace allot {

// Returns "allot 0.1.0 (commit 196c9970ab, GNU 12.2.0, Release)". The commit is "unknown commit" if
// the sources' folder has no .git of its own, or git is not installed.
const std::string& buildText();

}  // namespace allot
