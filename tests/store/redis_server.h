#pragma once
// RedisServer: a private redis-server for one test, on a unix socket in a temporary folder, with
// every write on disk before it is answered. Owned by the test; one thread.
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace allot::test {

class RedisServer {
 public:
  // Starts it; throws when redis-server is missing or does not come up. `more`: arguments; in them
  // FOLDER stands for its folder. `prepare`: writes files there before the start.
  explicit RedisServer(std::vector<std::string> more = {},
                       const std::function<void(const std::string&)>& prepare = {});
  ~RedisServer();  // kills it and removes its folder
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string url() const { return "unix:" + folder_ + "/redis.sock"; }
  const std::string& folder() const { return folder_; }

  // The arguments of the next start, instead of those given at first.
  void setMore(std::vector<std::string> more) { more_ = std::move(more); }
  void start();
  void killHard();  // SIGKILL: nothing is flushed
  void freeze();    // SIGSTOP: connections stay open, nothing is answered
  void thaw();

 private:
  std::string folder_;
  std::vector<std::string> more_;
  pid_t pid_ = -1;
};

}  // namespace allot::test
