#include "tests/store/redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "store/redis_connection.h"

namespace allot::test {

RedisServer::RedisServer() {
  std::string pattern = (std::filesystem::temp_directory_path() / "allot-redis-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
  start();
}

RedisServer::~RedisServer() {
  killHard();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RedisServer::start() {
  const std::string socket = folder_ + "/redis.sock";
  const std::string log = folder_ + "/redis.log";
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // do not outlive a test that crashed
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket.c_str(), "--dir",
           folder_.c_str(), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
           "--logfile", log.c_str(), "--daemonize", "no", static_cast<char*>(nullptr));
    _exit(127);
  }
  RedisConnection connection(*parseRedisUrl(url()), 1000);
  for (int i = 0; i < 1000; ++i) {
    if (connection.call({"PING"})) return;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("redis-server did not start: is it installed and in PATH?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("redis-server does not answer; see " + log);
}

void RedisServer::killHard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::freeze() {
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);  // it has stopped, not just been told to
}

void RedisServer::thaw() { kill(pid_, SIGCONT); }

}  // namespace allot::test
