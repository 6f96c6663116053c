#pragma once
// The last words of a process: what `kubectl describe pod` shows of one that ended.
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Writes the sentence to the file that the environment variable ALLOT_TERMINATION_LOG names, in
// place of what is there. At most 4 KiB (Kubernetes takes no more); best effort.
void writeTermination(std::string_view sentence);

// How a main() ends: 0, or the error's exit code with its sentence in the log and in the
// termination file.
int endProcess(const std::string& program, const Status& done);

}  // namespace allot
