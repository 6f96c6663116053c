#pragma once
// ClusterStore: access to the Redis of an experiment in a Kubernetes cluster, for the duration of
// one command. One thread. It uses kubectl to read the account's password from the experiment's
// Secret, and to forward a port of this machine to that Redis. The password stays in memory.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/child_process.h"
#include "core/files/files.h"
#include "core/result.h"

namespace allot {

struct ClusterChoice {
  std::string context;     // of kubectl; "current" or "-": the current one
  std::string name_space;  // in open() "" stands for the experiment's name
  std::string experiment;
};

// Accounts of the store (store/redis/acl.h).
enum class StoreAccount { kReader, kAggregator };

class ClusterStore {
 public:
  // Opens the store. kUsage: kubectl is missing or refuses (no such context, not allowed), or there
  // is no such experiment. kUnavailable: the cluster does not answer, or no port is forwarded
  // within 30 s. kData: an answer of another form. kIo: the system gives no file or process.
  static Result<ClusterStore> open(const ClusterChoice& choice, StoreAccount account);

  // Returns the Redis URL, which is valid as long as this object lives.
  const std::string& url() const { return url_; }
  // Returns `status`. If it is kUnavailable and the forwarding ends within 500 ms, returns
  // kubectl's error instead.
  Status explained(Status status);

 private:
  ClusterStore(ChildProcess forward, FileHandle log, FileHandle password, std::string what)
      : forward_(std::move(forward)),
        log_(std::move(log)),
        password_(std::move(password)),
        what_(std::move(what)) {}
  Result<int> waitForPort();
  std::string said() const;  // the output of kubectl

  ChildProcess forward_;
  FileHandle log_;        // of kubectl; already unlinked
  FileHandle password_;   // in memory, without a name
  FileHandle authority_;  // in memory, too; only with TLS
  std::string what_;      // "to forward a port to svc/x-redis in namespace x"
  std::string url_;
};

// Lists the experiments of a cluster that have stores, in where.name_space ("": in all namespaces)
// and of the name where.experiment ("": any). Errors are those of ClusterStore::open().
Result<std::vector<ClusterChoice>> listExperiments(const ClusterChoice& where);

}  // namespace allot
