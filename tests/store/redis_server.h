#pragma once
// RedisServer: a private redis-server for one test, on a unix socket in a temporary folder, with
// every write on disk before it is answered. Owned by the test; one thread.
#include <sys/types.h>

#include <string>

namespace allot::test {

class RedisServer {
 public:
  RedisServer();   // starts it; throws when redis-server is missing or does not come up
  ~RedisServer();  // kills it and removes its folder
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string url() const { return "unix:" + folder_ + "/redis.sock"; }
  const std::string& folder() const { return folder_; }

  void start();
  void killHard();  // SIGKILL: nothing is flushed
  void freeze();    // SIGSTOP: connections stay open, nothing is answered
  void thaw();

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace allot::test
