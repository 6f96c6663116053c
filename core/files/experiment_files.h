#pragma once
// Finds the files that an experiment names. Reads the file system; any thread.
#include <string>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// Returns `path` itself if it exists, else the path below the nearest parent of `experiment_file`'s
// folder that has it; "" stays "". kUsage, naming `key`, if it is nowhere.
Result<std::string> findNamedPath(const std::string& key, const std::string& path,
                                  const std::string& experiment_file);

// Replaces the name in spec.attention.prefillProfile by the profile, so that workers find
// everything in the stored experiment. Does nothing if the profile is already there. kUsage names
// the file.
Status embedProfile(v1::Experiment* experiment, const std::string& experiment_file);

}  // namespace allot
