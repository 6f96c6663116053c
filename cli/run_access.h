#pragma once
// RunAccess: the run that a command is about, opened for the duration of the command. One thread.
//
// The source depends on the choice:
//  - a folder in which `allot run` is alive: its redis-server;
//  - a folder whose run has ended: a temporary redis-server on its data, or the run's files if the
//    data is write-protected;
//  - an exported folder: its files;
//  - --redis: that server;
//  - --context: the server of an experiment in a cluster.
#include <memory>
#include <optional>
#include <string>

#include "cli/child_process.h"
#include "cli/cluster.h"
#include "cli/run_folder.h"
#include "core/result.h"
#include "store/archive/run_source.h"
#include "store/store.h"

namespace allot {

// The command line's choice of a run.
struct RunChoice {
  std::string folder;      // "": runs/latest, unless redis is given
  std::string redis;       // URL
  std::string run;         // with redis: run id
  std::string experiment;  // with redis or context: its newest run
  std::string context;     // a cluster, see ClusterChoice
  std::string name_space;  // with context
  std::string redis_server = "redis-server";
};

// A redis-server on a folder's data.
class LocalRedis {
 public:
  // Starts it and waits until it answers.
  static Result<LocalRedis> start(const std::string& program, const std::string& folder,
                                  const std::string& run_id);
  LocalRedis(LocalRedis&&) noexcept = default;
  LocalRedis& operator=(LocalRedis&&) = delete;
  ~LocalRedis();  // stops it in good order

  const std::string& socket() const { return socket_; }

 private:
  LocalRedis(std::string socket, ChildProcess process)
      : socket_(std::move(socket)), process_(std::move(process)) {}
  std::string socket_;
  std::optional<ChildProcess> process_;
};

// Waits until the server answers the store's requests. Returns an error at once if `server` has
// ended.
Status waitForRedis(RunReader* store, ChildProcess* server, const std::string& log);

class RunAccess {
 public:
  enum class Kind {
    kLive,    // a folder in which `allot run` is alive
    kEnded,   // a folder whose run has ended
    kRemote,  // --redis or --context
    kFiles,   // an exported folder: no store
  };

  // Opens the run. account: for the store of a cluster.
  static Result<RunAccess> open(const RunChoice& choice,
                                StoreAccount account = StoreAccount::kReader);

  // Returns a command's outcome, with the reason if the connection to the cluster ended.
  Status explained(Status outcome);

  Kind kind() const { return kind_; }
  const std::string& runId() const { return run_id_; }
  const std::string& folder() const { return folder_; }  // absolute; "" with --redis
  RunSource& source() { return *source_; }
  Store* store() { return store_.get(); }  // null for files
  // Returns the store. kUsage for files: "import them first".
  Result<Store*> needStore();
  // Returns the arguments that name this run on another command line: "runs/x", "--redis URL --run
  // ID", or for a cluster "--context CTX --experiment NAME ...".
  std::string arguments() const;
  // Returns the command that resumes an ended run; "" for others.
  std::string resumeCommand() const;

 private:
  RunAccess() = default;
  static Result<RunAccess> openCluster(const RunChoice& choice, StoreAccount account);
  Status openRemote(const RunChoice& choice);
  static Result<RunAccess> openFolder(const RunChoice& choice);
  static Result<RunAccess> openFiles(const std::string& folder);
  // Returns true once `allot run` or a temporary redis-server answers.
  Result<bool> tryOpen(const RunChoice& choice);
  tl::unexpected<Error> stillTaken() const;

  Kind kind_ = Kind::kFiles;
  std::string run_id_;
  std::string folder_;
  std::string remote_;  // arguments that name the store and the run
  // Destroyed from the last to the first: each needs the ones before it.
  std::optional<FolderLock> lock_;
  std::optional<LocalRedis> server_;
  std::optional<ClusterStore> cluster_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RunSource> source_;
};

// Opens the run and does the command's work on it. If the connection ended, the error says why.
template <typename Work>
Status withRun(const RunChoice& choice, StoreAccount account, const Work& work) {
  ALLOT_ASSIGN(RunAccess access, RunAccess::open(choice, account));
  return access.explained(work(&access));
}

}  // namespace allot
