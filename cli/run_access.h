#pragma once
// RunAccess: the run that a command is about, opened for the duration of the command. Used by one
// thread.
//
// The source depends on the choice:
//  - a folder that a running `allot run` holds: its redis-server;
//  - a folder whose run has ended: a temporary redis-server on its data, also if it was exported;
//  - an exported folder without Redis data, or that cannot be written to: the exported files;
//  - --redis: that server;
//  - --context: the server of an experiment in a cluster.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "aggregator/snapshot.h"
#include "cli/child_process.h"
#include "cli/cluster.h"
#include "cli/run_folder.h"
#include "core/result.h"
#include "store/archive/run_source.h"
#include "store/store.h"

namespace allot {

struct RunChoice {
  std::string folder;      // "": runs/latest, unless redis or context is given
  std::string redis;       // URL
  std::string run;         // run id; with redis or context
  std::string experiment;  // with redis or context: chooses this experiment's newest run
  std::string context;     // a cluster, see ClusterChoice
  std::string name_space;  // with context
  std::string redis_server = "redis-server";
};

// "runs/x@120": a folder or run id, and a version.
struct RunAtVersion {
  std::string run;
  std::optional<uint64_t> version;
};
// Parses such a text. A folder of that very name has no version. kUsage names `place`.
Result<RunAtVersion> runAtVersion(const std::string& place, const std::string& text);

// A redis-server on a folder's data.
class LocalRedis {
 public:
  // Starts a redis-server on the data of `folder` and waits until it answers.
  static Result<LocalRedis> start(const std::string& program, const std::string& folder,
                                  const std::string& run_id);
  LocalRedis(LocalRedis&&) noexcept = default;
  LocalRedis& operator=(LocalRedis&&) = delete;
  ~LocalRedis();  // sends SIGTERM, and SIGKILL after 10 s

  const std::string& socket() const { return socket_; }

 private:
  LocalRedis(std::string socket, ChildProcess process)
      : socket_(std::move(socket)), process_(std::move(process)) {}
  std::string socket_;
  std::optional<ChildProcess> process_;
};

// Waits up to 60 s until `store` can read from `server`. Returns an error early if `server` has
// ended or the error is not kUnavailable.
Status waitForRedis(RunReader* store, ChildProcess* server, const std::string& log);

class RunAccess {
 public:
  enum class Kind {
    kLive,    // a folder that a running `allot run` holds
    kEnded,   // a folder whose run has ended
    kRemote,  // --redis or --context
    kFiles,   // exported files, without a store
  };

  // Opens the run. `account` is the Redis account to use with --context, and ignored otherwise.
  static Result<RunAccess> open(const RunChoice& choice,
                                StoreAccount account = StoreAccount::kReader);

  // Returns `outcome`; with --context, ClusterStore::explained(outcome).
  Status explained(Status outcome);

  Kind kind() const { return kind_; }
  const std::string& runId() const { return run_id_; }   // "" for files
  const std::string& folder() const { return folder_; }  // absolute; "" with --redis, --context
  RunSource& source() { return *source_; }
  Store* store() { return store_.get(); }  // null for files
  // Returns the store. kUsage for exported files, with the `allot import` command to run first.
  Result<Store*> needStore();
  // Returns the arguments that name this run on another command line: the absolute folder, "--redis
  // URL --run ID", or for a cluster "--context CTX --experiment NAME ...".
  std::string arguments() const;
  // Returns the command that resumes an ended run; "" for others.
  std::string resumeCommand() const;

 private:
  RunAccess() = default;
  static Result<RunAccess> openCluster(const RunChoice& choice, StoreAccount account);
  Status openRemote(const RunChoice& choice);
  static Result<RunAccess> openFolder(const RunChoice& choice);
  static Result<RunAccess> openFiles(const std::string& folder);
  // Makes one attempt to open the folder's store. Returns false if it is not open: the caller must
  // then try again or, if kind_ is kFiles, read the files.
  Result<bool> tryOpen(const RunChoice& choice);
  tl::unexpected<Error> folderIsBusy() const;

  Kind kind_ = Kind::kFiles;
  std::string run_id_;
  std::string folder_;
  std::string remote_;  // arguments that name the store and the run
  // Members are destroyed in reverse order: the store goes before its server, and the server before
  // the lock.
  std::optional<FolderLock> lock_;
  std::optional<LocalRedis> server_;
  std::optional<ClusterStore> cluster_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RunSource> source_;
};

// Opens the run and calls `work` with a RunAccess*. Returns RunAccess::explained() of the status of
// `work`.
template <typename Work>
Status withRun(const RunChoice& choice, StoreAccount account, const Work& work) {
  ALLOT_ASSIGN(RunAccess access, RunAccess::open(choice, account));
  return access.explained(work(&access));
}

// Calls `take` for the evaluations that the source has not returned yet, except impossible ones
// (whyImpossible), since the aggregator may not have checked the newest.
Status eachEvaluation(RunSource* source, const RunHead& head,
                      const std::function<void(const v1::EvaluationResult&)>& take);

// A whole run for page, report and status. It takes memory that grows with the evaluations, not
// with the history.
struct ReadRun {
  RunSnapshot snapshot;
  uint64_t last_unix_ms = 0;  // of the newest update or evaluation; 0: none
};

// Reads the run, from files or from a store. each: called for every update, with its results, in
// order.
Result<ReadRun> readRun(RunSource* source,
                        const std::function<void(const v1::IterationRecord&)>& each = {});

}  // namespace allot
