#pragma once
// Which random numbers a fork draws. Pure, any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

struct ForkStreams {
  std::vector<std::string> set;  // "spec.key=value", to go behind the command line's own
  std::string told;              // for people: "it draws anew, as spec.repetition=4711"
};

// Of a fork of a run of `parent`: as repetition `fresh`, which is independent of every run before;
// with `same` the parent's, so that the fork asks and draws as its parent did. `given`: the command
// line's settings; a repetition among them is taken, and with `same` none may say what is drawn
// (kUsage).
Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh);

}  // namespace allot
