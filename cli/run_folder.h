#pragma once
// A run's folder on this machine: its note run.json, its lock, the socket of its redis-server. Any
// thread.
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "core/files/files.h"
#include "core/result.h"

namespace allot {

constexpr char kLatestRun[] = "runs/latest";
constexpr char kTargetsFolder[] = "targets";   // for Prometheus: a file for each process
constexpr char kOriginFile[] = "origin.json";  // v1::Origin; in a fork's folder

// run.json: the data that resuming a run needs.
struct RunNote {
  std::string run_id;
  std::string experiment_file;
  std::vector<std::string> set;  // spec.key=value
  std::string model;             // folder; "": the experiment's
  bool stored = false;           // the run was seen in the folder's store
};

// Returns an absolute path without links, dots and trailing slash; kUsage if there is no such
// folder.
Result<std::string> existingFolder(const std::string& path);
bool holdsRun(const std::string& folder);   // run.json is there
bool holdsData(const std::string& folder);  // run.json and Redis's data are there
// Checks that the list of the files of Redis's data is there if they are: without it Redis begins
// with nothing.
Status checkData(const std::string& folder);
bool holdsExport(const std::string& folder);  // export.json is there

// Reads run.json. kUsage if it cannot be read or names no run.
Result<RunNote> readRunNote(const std::string& folder);
Status writeRunNote(const std::string& folder, const RunNote& note);

// Links <parent>/latest to the folder, if possible.
void linkLatest(const std::string& folder);

// The lock of a folder. The process that serves the folder's data holds it: `allot run`, or another
// command for its duration.
class FolderLock {
 public:
  enum class Holder { kRun, kCommand };

  // Tries to lock. Returns nothing if another process has the lock; kUsage if the lock's file
  // cannot be opened.
  static Result<std::optional<FolderLock>> tryLock(const std::string& folder, Holder who);
  // Returns the kind that the last holder noted; kRun if it noted none.
  static Holder holderOf(const std::string& folder);

 private:
  explicit FolderLock(FileHandle file) : file_(std::move(file)) {}
  FileHandle file_;  // locked until it is closed
};

// Returns the path of the socket of the folder's redis-server: in `folder`, or in the temporary
// folder if that path has more than 100 bytes.
std::string socketPath(const std::string& folder, const std::string& run_id);

// Returns the command of a redis-server on the folder's data, which syncs each write before the
// reply.
Command redisCommand(const std::string& program, const std::string& folder,
                     const std::string& socket);
// Waits until no server listens on the socket: the redis-server of a killed `allot run` lives on
// for a moment. Two servers on one folder would corrupt its data. kUsage after 20 s.
Status waitUntilUnserved(const std::string& socket);
// Checks that the program exists. kUsage: "redis-server was not found: install it ..."
Status checkRedisProgram(const std::string& program);

}  // namespace allot
