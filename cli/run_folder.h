#pragma once
// A run's folder on this machine: its note run.json, its lock, the socket of its redis-server.
//
// Whoever serves the folder's data holds the lock: `allot run`, or another command for as long as
// it takes. Any thread.
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "core/files/files.h"
#include "core/result.h"

namespace allot {

constexpr char kLatestRun[] = "runs/latest";
constexpr char kTargetsFolder[] = "targets";   // of Prometheus: a file a process
constexpr char kOriginFile[] = "origin.json";  // v1::Origin; in a fork's folder

// run.json: what going on with a run takes.
struct RunNote {
  std::string run_id;
  std::string experiment_file;
  std::vector<std::string> set;  // spec.key=value
  std::string model;             // folder; "": as the experiment says
};

// Absolute, without links, dots and trailing slash; kUsage if there is no such folder.
Result<std::string> existingFolder(const std::string& path);
bool holdsRun(const std::string& folder);   // run.json is there
bool holdsData(const std::string& folder);  // so is Redis's data
bool holdsExport(const std::string& folder);

// kUsage if it names no run.
Result<RunNote> readRunNote(const std::string& folder);
Status writeRunNote(const std::string& folder, const RunNote& note);

// Points <parent>/latest at the folder, as far as that is possible.
void linkLatest(const std::string& folder);

class FolderLock {
 public:
  enum class Holder { kRun, kCommand };

  // Nothing if another process has it. kUsage if the folder cannot be locked at all.
  static Result<std::optional<FolderLock>> tryTake(const std::string& folder, Holder who);
  // Who has it, as far as that one has said so.
  static Holder holderOf(const std::string& folder);

 private:
  explicit FolderLock(FileHandle file) : file_(std::move(file)) {}
  FileHandle file_;  // locked until it is closed
};

// The socket of the folder's redis-server; elsewhere if the folder's path is too long for one.
std::string socketPath(const std::string& folder, const std::string& run_id);

// A redis-server on the folder's data: every acknowledged write is on the disk.
Command redisCommand(const std::string& program, const std::string& folder,
                     const std::string& socket);
// Waits until nobody serves the socket any more, as the redis-server of a killed `allot run` does
// for a moment: two on one folder would spoil its data. kUsage if it stays.
Status waitUntilUnserved(const std::string& socket);
// kUsage: "redis-server was not found: install it ..."
Status checkRedisProgram(const std::string& program);

}  // namespace allot
