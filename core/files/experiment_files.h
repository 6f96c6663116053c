#pragma once
// The files that an experiment names. Looks at the file system; any thread.
#include <string>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// `path` as it stands, or below the nearest parent of `experiment_file`'s folder that has it; ""
// stays "". kUsage, naming `key`, if it is nowhere.
Result<std::string> findNamedPath(const std::string& key, const std::string& path,
                                  const std::string& experiment_file);

// What spec.attention.prefillProfile names takes the place of its name: workers find all that they
// need in the stored experiment. Nothing is done where it is there already. kUsage names the file.
Status bringInProfile(v1::Experiment* experiment, const std::string& experiment_file);

}  // namespace allot
