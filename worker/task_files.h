#pragma once
// Where the files of spec.task are. Looks at the file system; any thread.
#include <string>

#include "core/result.h"

namespace allot {

// `path` as it stands, or below the nearest parent of `experiment_file`'s folder that has it; ""
// stays "". kUsage, naming `key`, if it is nowhere.
Result<std::string> findTaskPath(const std::string& key, const std::string& path,
                                 const std::string& experiment_file);

}  // namespace allot
