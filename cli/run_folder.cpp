#include "cli/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "core/digest.h"
#include "core/json_text.h"
#include "core/ulid.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A unix socket's address holds 108 bytes.
constexpr size_t kLongestSocketPath = 100;
constexpr uint64_t kLargestNote = 1 << 20;

bool isThere(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool isServed(const std::string& socket_path) {
  const FileHandle file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!file.isOpen() || socket_path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  return connect(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

Result<std::string> existingFolder(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::canonical(path, error);
  if (error || !fs::is_directory(found, error)) {
    if (path == kLatestRun) {
      return badInput("there is no " + path + " here: name the folder of a run");
    }
    return badInput(path + " is no folder: name the folder of a run");
  }
  return found.string();
}

bool holdsRun(const std::string& folder) { return isThere(folder + "/run.json"); }

bool holdsData(const std::string& folder) {
  return holdsRun(folder) && isThere(folder + "/appendonlydir");
}

Status checkData(const std::string& folder) {
  const std::string data = folder + "/appendonlydir";
  std::error_code error;
  bool listed = false, some = false;
  for (fs::directory_iterator each(data, error), end; !error && each != end;
       each.increment(error)) {
    listed = listed || each->path().extension() == ".manifest";
    some = some || each->path().extension() == ".aof" || each->path().extension() == ".rdb";
  }
  if (listed || !some) return {};
  return badInput(data +
                  " lacks appendonly.aof.manifest, the list of the files in it, which hold "
                  "the run: bring it back from a copy of the folder");
}

bool holdsExport(const std::string& folder) { return isThere(folder + "/export.json"); }

Result<RunNote> readRunNote(const std::string& folder) {
  const std::string path = folder + "/run.json";
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, kLargestNote));
  ALLOT_ASSIGN(const json run, parseJson(text, path));
  RunNote note;
  const auto take = [&](const char* key, std::string* value) {
    if (run.is_object() && run.contains(key) && run[key].is_string()) *value = run[key];
  };
  take("run_id", &note.run_id);
  take("experiment_file", &note.experiment_file);
  take("model", &note.model);
  if (!isUlid(note.run_id)) return badInput(path + " does not name a run: it cannot be used");
  for (const json& setting : run.value("set", json::array())) {
    if (setting.is_string()) note.set.push_back(setting);
  }
  note.stored = run.value("stored", false);
  return note;
}

Status writeRunNote(const std::string& folder, const RunNote& note) {
  const json run = {{"run_id", note.run_id},
                    {"experiment_file", note.experiment_file},
                    {"set", note.set},
                    {"model", note.model},
                    {"stored", note.stored}};
  return writeWholeFile(folder + "/run.json",
                        run.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void linkLatest(const std::string& folder) {
  const fs::path here(folder);
  const fs::path temporary = here.parent_path() / (".latest-" + std::to_string(getpid()));
  std::error_code error;
  fs::create_directory_symlink(here.filename(), temporary, error);
  fs::rename(temporary, here.parent_path() / "latest", error);
  if (error) fs::remove(temporary, error);
}

Result<std::optional<FolderLock>> FolderLock::tryLock(const std::string& folder, Holder who) {
  FileHandle file(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.isOpen()) {
    return badInput("cannot write to " + folder + " (" +
                    std::error_code(errno, std::generic_category()).message() +
                    "): its data cannot be served from there");
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  const std::string text = who == Holder::kRun ? "run\n" : "command\n";
  // Only holderOf() reads the text: an error of writing it is ignored.
  if (ftruncate(file.get(), 0) == 0) (void)!pwrite(file.get(), text.data(), text.size(), 0);
  return FolderLock(std::move(file));
}

FolderLock::Holder FolderLock::holderOf(const std::string& folder) {
  const auto text = readWholeFile(folder + "/lock", kLargestNote);
  return text && *text == "command\n" ? Holder::kCommand : Holder::kRun;
}

std::string socketPath(const std::string& folder, const std::string& run_id) {
  const std::string here = folder + "/redis.sock";
  if (here.size() <= kLongestSocketPath) return here;
  const std::string name = "allot-" + run_id + "-" + sha256Hex(folder).substr(0, 12) + ".sock";
  return (fs::temp_directory_path() / name).string();
}

Command redisCommand(const std::string& program, const std::string& folder,
                     const std::string& socket) {
  return {program,
          {"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--dir", folder,
           "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy",
           "noeviction", "--daemonize", "no"},
          {}};
}

Status waitUntilUnserved(const std::string& socket) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (isServed(socket)) {
    if (std::chrono::steady_clock::now() > end) {
      return badInput("another redis-server still serves " + socket + ": end it first");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

Status checkRedisProgram(const std::string& program) {
  if (findProgram(program)) return {};
  return badInput(program +
                  " was not found: install redis-server (Debian: apt-get install redis-server) "
                  "or name it with --redis-server");
}

}  // namespace allot
