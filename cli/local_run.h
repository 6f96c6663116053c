#pragma once
// LocalRun: starts, watches and stops the processes of one run on this machine, in order. Owned by
// runCommand; one thread. The processes are redis-server on a unix socket, one aggregator, N
// workers.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/run_command.h"
#include "core/result.h"
#include "store/store.h"

namespace allot {

struct LocalRunPlan {
  RunOptions options;  // experiment_file and model absolute
  std::string dir;     // absolute
  std::string run_id;
  std::string model_folder;
  std::string task_path = {};  // spec.task.path, absolute; "": none
  std::string held_out_path = {};
  unsigned workers = 1;
  uint64_t kv_mib = 0;                 // per worker
  uint64_t host_mib = 0;               // host memory of each worker that is on a GPU
  std::vector<std::string> gpus = {};  // CUDA_VISIBLE_DEVICES of each worker; empty: the parent's
};

class LocalRun {
 public:
  explicit LocalRun(LocalRunPlan plan);
  ~LocalRun();  // stops what still runs

  // Starts Redis and waits until it answers.
  Status startStore();
  Status startAggregator();
  bool aggregatorLives();
  // Starts the workers. wanted: false for a finished run, whose report alone is written again,
  // without workers.
  Status startWorkers(bool wanted);
  // Restarts Redis if it ended, and other processes if they ended with an error. The owner calls it
  // again and again. Returns true once the aggregator has ended with status 0. Returns an error if
  // no restart helps a process, or if all workers have ended and the run is not over.
  Result<bool> watch();
  // Stops workers first, so that they can push their results, then the aggregator, then Redis. A
  // process that does not end in time is killed.
  void stop();

  // Returns the address of the aggregator's page once it is served; "" until then.
  std::string pageUrl() const;

  // Requires: startStore() succeeded.
  Store& store() { return *store_; }

 private:
  struct Child {
    std::string name;  // "worker-1"; its log is <dir>/<name>.log
    Command command;
    std::optional<ChildProcess> process;
    int restarts = 0;  // in quick succession
    std::chrono::steady_clock::time_point started{};
    std::chrono::steady_clock::time_point start_after{};
  };

  Status launch(Child* child);
  // Restarts a child that ended with `status` after a pause. watch() calls it until then. Returns
  // an error if a restart cannot help, or after kMaxRestarts quick restarts.
  Status revive(Child* child, int status);
  tl::unexpected<Error> gaveUp(const Child& child, int status) const;
  std::string logOf(const Child& child) const;
  // Returns the path of the child's target file for Prometheus.
  std::string targetFileOf(const Child& child) const;
  static void stopChild(Child* child, std::chrono::milliseconds patience);

  const LocalRunPlan plan_;
  std::string socket_;
  std::unique_ptr<Store> store_;
  Child redis_;
  Child aggregator_;
  std::vector<Child> workers_;
};

}  // namespace allot
