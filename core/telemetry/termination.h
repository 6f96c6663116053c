#pragma once
// The last words of a process, which `kubectl describe pod` shows after its end. Used only by
// main().
#include <string>
#include <string_view>

#include "core/result.h"

namespace allot {

// Replaces the content of the file that the environment variable ALLOT_TERMINATION_LOG names by the
// sentence. At most 4 KiB (Kubernetes' limit); best effort.
void writeTermination(std::string_view sentence);

// Ends a main(): returns 0, or the error's exit code after writing its sentence to the log and the
// termination file.
int endProcess(const std::string& program, const Status& done);

}  // namespace allot
