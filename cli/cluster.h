#pragma once
// ClusterStore: the way to the Redis of an experiment in a Kubernetes cluster, for as long as one
// command takes.
//
// kubectl does the talking: it reads the account's password from the experiment's Secret and
// forwards a port of this machine. The password stays in memory. One thread.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/child_process.h"
#include "core/files/files.h"
#include "core/result.h"

namespace allot {

struct ClusterChoice {
  std::string context;     // of kubectl; "current" or "-": its current one
  std::string name_space;  // "": named as the experiment
  std::string experiment;
};

// Accounts of the store (store/redis/acl.h).
enum class StoreAccount { kReader, kAggregator };

class ClusterStore {
 public:
  // kUsage, in one sentence, for everything that a person must mend: no kubectl, no such context,
  // not allowed, no such experiment. kUnavailable if the cluster does not answer.
  static Result<ClusterStore> open(const ClusterChoice& choice, StoreAccount account);

  // Good while this object lives.
  const std::string& url() const { return url_; }
  // As `status`, unless it is the forwarding that has ended: then that is said.
  Status explained(Status status);

 private:
  ClusterStore(ChildProcess forward, FileHandle log, FileHandle password, std::string what)
      : forward_(std::move(forward)),
        log_(std::move(log)),
        password_(std::move(password)),
        what_(std::move(what)) {}
  Result<int> waitForPort();
  std::string said() const;  // by kubectl

  ChildProcess forward_;
  FileHandle log_;       // of kubectl; has no name any more
  FileHandle password_;  // in memory, without a name
  std::string what_;     // "to forward a port to svc/x-redis in namespace x"
  std::string url_;
};

// The experiments of a cluster by their stores: of where.name_space, or of all namespaces, and of
// where.experiment, or all. Errors as of ClusterStore::open().
Result<std::vector<ClusterChoice>> listExperiments(const ClusterChoice& where);

// The text that `base64` stands for; nothing if it is not well-formed.
std::optional<std::string> fromBase64(const std::string& base64);

}  // namespace allot
