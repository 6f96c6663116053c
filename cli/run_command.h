#pragma once
// `allot run`: a whole run on this machine, with the processes that a cluster would run.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"

namespace allot {

struct RunOptions {
  std::string experiment_file;  // "" with resume: the one that the run's folder names
  unsigned workers = 0;         // 0: as many as cores
  std::string dir;              // "": runs/<run id>
  bool resume = false;
  bool synchronous = false;
  bool allow_code_execution = false;  // as of allot-worker
  std::vector<std::string> set;
  std::string redis_server = "redis-server";
  std::string model;
  uint64_t kv_mib = 0;
  std::optional<uint64_t> host_mib = {};  // per worker
  uint32_t rows_of_step = 0;              // allot-worker --rows; 0: as the worker has it
  int port = -1;                          // -1: 9464 if free, else any
  std::optional<v1::Origin> origin;       // of a fork
};

// Runs to the end; the process's exit code. Writes to stdout and stderr.
int runCommand(const RunOptions& options);

}  // namespace allot
