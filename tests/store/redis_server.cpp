#include "tests/store/redis_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace allot::test {

namespace {

// How often the server has said that it is ready. Asking it would not do: one that wants a password
// answers before it has loaded its data.
size_t readyLines(const std::string& log) {
  std::ifstream file(log);
  size_t count = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find("eady to accept connections") != std::string::npos) ++count;
  return count;
}

}  // namespace

RedisServer::RedisServer(std::vector<std::string> more,
                         const std::function<void(const std::string&)>& prepare)
    : more_(std::move(more)) {
  std::string pattern = (std::filesystem::temp_directory_path() / "allot-redis-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
  for (std::string& argument : more_)
    if (const size_t at = argument.find("FOLDER"); at != std::string::npos)
      argument.replace(at, 6, folder_);
  if (prepare) prepare(folder_);
  start();
}

RedisServer::~RedisServer() {
  killHard();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RedisServer::start() {
  const std::string log = folder_ + "/redis.log";
  std::vector<std::string> words = {"redis-server", "--port", "0", "--appendonly", "yes"};
  words.insert(words.end(), {"--unixsocket", folder_ + "/redis.sock", "--dir", folder_});
  words.insert(words.end(), {"--appendfsync", "always", "--save", "", "--logfile", log});
  words.insert(words.end(), more_.begin(), more_.end());  // the last word on a setting stands
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const size_t before = readyLines(log);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // do not outlive a test that crashed
    execvp("redis-server", arguments.data());
    _exit(127);
  }
  for (int i = 0; i < 1000; ++i) {
    if (readyLines(log) > before) return;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("redis-server did not start: is it installed and in PATH?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("redis-server does not become ready; see " + log);
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
