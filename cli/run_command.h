#pragma once
// `allot run`: a whole run on this machine, with the processes that a cluster would run. One
// thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"

namespace allot {

struct RunOptions {
  std::string experiment_file;  // "" with resume: the one in the run's note
  unsigned workers = 0;         // 0: as many as cores
  std::string dir;              // "": runs/<run id>
  bool resume = false;
  bool synchronous = false;
  bool allow_code_execution = false;  // allot-worker --allow-code-execution
  std::vector<std::string> set;
  std::string redis_server = "redis-server";
  std::string model;
  uint64_t kv_mib = 0;
  std::optional<uint64_t> host_mib = {};  // per worker
  uint32_t rows_of_step = 0;              // allot-worker --rows; 0: the worker's default
  int port = -1;                          // -1: 9464 if free, else any
  std::optional<v1::Origin> origin;       // of a fork
};

// Runs to the end and returns the exit code. Writes to stdout and stderr.
int runCommand(const RunOptions& options);

}  // namespace allot
