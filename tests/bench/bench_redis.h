#pragma once
// The clock of the benches, and a redis-server of their own. One thread.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cli/child_process.h"

namespace allot {

using Clock = std::chrono::steady_clock;

inline double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
inline uint64_t nowMs() {
  const auto now = Clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// Starts redis-server on redis.sock in the folder, which is made. Returns once the socket is there.
inline Result<ChildProcess> startRedis(const std::string& dir, const char* fsync) {
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);
  const std::string socket = dir + "/redis.sock";
  ALLOT_ASSIGN(auto redis,
               ChildProcess::start(
                   {"redis-server",
                    {"--port", "0", "--unixsocket", socket, "--dir", dir, "--appendonly", "yes",
                     "--appendfsync", fsync, "--save", "", "--auto-aof-rewrite-percentage", "0"},
                    {}},
                   dir + "/redis.log"));
  while (!std::filesystem::exists(socket)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return redis;
}

inline void stopRedis(ChildProcess* redis) {
  redis->signal(SIGTERM);
  redis->waitFor(std::chrono::seconds(20));
}

}  // namespace allot
