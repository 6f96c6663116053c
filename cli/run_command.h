#pragma once
// `allot run`: a whole run on this machine, with the processes that a cluster would run. One
// thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/result.h"

namespace allot {

// Chooses the random numbers that a fork draws. Pure, any thread.
struct ForkStreams {
  std::vector<std::string> set;  // "spec.key=value", to append to the command line's settings
  std::string told;              // for people: "it draws anew, as spec.repetition=4711"
};

// Returns the streams of a fork of a run of `parent`. `given` are the command line's settings. If
// `same` is true, the fork asks and draws as its parent did; spec.seed or spec.repetition in
// `given` is then kUsage. Else its spec.repetition is that of `given`, or `fresh` if `given` has
// none.
Result<ForkStreams> forkStreams(const v1::Spec& parent, const std::vector<std::string>& given,
                                bool same, uint64_t fresh);

// Returns why a fork leaves out the measurement of its origin's layers, with the settings that
// differ; "" if it keeps it.
std::string droppedMeasurement(const v1::Spec& parent, const v1::Spec& fork);

struct RunOptions {
  std::string experiment_file;  // "" with resume: that of RunNote
  unsigned workers = 0;         // 0: as sizeWorkers() says
  std::string dir;              // "": runs/<run id>, or runs/latest with resume
  bool resume = false;
  bool synchronous = false;
  bool allow_code_execution = false;  // allot-worker --allow-code-execution
  std::vector<std::string> set;
  std::string redis_server = "redis-server";
  std::string model;                      // folder; "": spec.model.path
  uint64_t kv_mib = 0;                    // per worker; 0: as sizeWorkers() says
  std::optional<uint64_t> host_mib = {};  // per worker; nothing: an equal share of half the memory
  uint32_t rows_of_step = 0;              // allot-worker --rows; 0: the worker's default
  int port = -1;                          // -1: 9464 if free, else any
  std::optional<v1::Origin> origin;       // of a fork
};

// Runs to the end and returns the exit code, which is 130 if a signal ended the run in good order.
// Writes to stdout and stderr.
int runCommand(const RunOptions& options);

}  // namespace allot
