#pragma once
// ClusterStore: access to the Redis of an experiment in a Kubernetes cluster, for the duration of
// one command. One thread.
//
// It uses kubectl to read the account's password from the experiment's Secret and to forward a port
// of this machine. The password stays in memory.
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
  std::string name_space;  // "": the experiment's name
  std::string experiment;
};

// Accounts of the store (store/redis/acl.h).
enum class StoreAccount { kReader, kAggregator };

class ClusterStore {
 public:
  // Opens it. kUsage, in one sentence, for all that a person must correct: no kubectl, no such
  // context, not allowed, no such experiment. kUnavailable if the cluster does not answer.
  static Result<ClusterStore> open(const ClusterChoice& choice, StoreAccount account);

  // Valid as long as this object lives.
  const std::string& url() const { return url_; }
  // Returns `status`, or the error of the forwarding if that has ended.
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
  FileHandle log_;       // of kubectl; already unlinked
  FileHandle password_;  // in memory, without a name
  std::string what_;     // "to forward a port to svc/x-redis in namespace x"
  std::string url_;
};

// Lists the experiments of a cluster that have stores: of where.name_space, or of all namespaces,
// and of where.experiment, or all. Errors are ClusterStore::open()'s.
Result<std::vector<ClusterChoice>> listExperiments(const ClusterChoice& where);

// Decodes base64; nothing if it is not well-formed.
std::optional<std::string> fromBase64(const std::string& base64);

}  // namespace allot
