#pragma once
// Chooses the random numbers that a fork draws. Pure, any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

struct ForkStreams {
  std::vector<std::string> set;  // "spec.key=value", to append to the command line's settings
  std::string told;              // for people: "it draws anew, as spec.repetition=4711"
};

// Returns the streams of a fork of a run of `parent`. Without `same` it is repetition `fresh`,
// which is independent of all earlier runs. With `same` it has the parent's streams, so that it
// asks and draws as its parent did. `given` are the command line's settings. A repetition among
// them is used; with `same`, a setting that changes the draws is kUsage.
Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh);

}  // namespace allot
