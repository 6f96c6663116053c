#pragma once
// Controller: makes the objects that run experiments agree with the Experiments of a cluster.
//
// Experiments are watched (k8s/client/reflector.h); their workloads and pods are listed every ten
// seconds; and aggregators that are ready are asked for the status of their runs. Each experiment
// is looked at when it changes and at each listing: plan() decides, and the controller carries out
// the plan. An experiment that failed waits for 1 s, doubled with each failure up to 300 s, or
// until its spec changes. Others are not delayed. The owner calls turn() in a loop, on one thread,
// while the process leads. A turn begins no further experiment after 5 s, so that a process without
// the lease stops soon.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "k8s/client/events.h"
#include "k8s/client/reflector.h"
#include "k8s/operator/plan.h"

namespace allot {

struct ControllerOptions {
  std::vector<std::string> namespaces;  // empty: all of the cluster
  std::string registry;                 // as in ObjectOptions
  std::string tag;
  std::string instance;  // of this process, for events
  std::chrono::milliseconds look_every{10'000};
  // All objects are applied again after this time, since the controller does not see what others
  // change in objects that it does not list.
  std::chrono::milliseconds apply_again{600'000};
  kube::Clock clock = kube::steadyClock();
  std::function<uint64_t()> unix_ms;
  // The document of /api/status of an experiment's aggregator; no value if the aggregator does not
  // answer.
  std::function<std::optional<nlohmann::json>(const std::string& space, const std::string& name)>
      ask;
  // Passwords by role (newPasswords of store/redis/acl.h).
  std::function<Result<std::map<std::string, std::string>>()> passwords;
};

class Controller {
 public:
  Controller(const kube::ServerAccess& access, ControllerOptions options);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Waits up to `wait` for changed Experiments, unless some are queued already. Lists workloads and
  // pods if look_every has passed. Then reconciles queued Experiments until 5 s have passed; the
  // rest stay queued for the next turn.
  void turn(std::chrono::milliseconds wait);

  struct Counts {
    uint64_t experiments = 0;
    uint64_t reconciles = 0;
    uint64_t failures = 0;  // of listings and of experiments
  };
  Counts counts() const { return counts_; }
  // Returns why Experiments cannot be read; "" while they can.
  std::string problem() const;

 private:
  // What is remembered of an experiment between two looks.
  struct Memory {
    AppliedObjects applied;
    kube::TimePoint applied_at{};
    std::optional<TextMap> accounts;
    // What `made` was made of. When that changes, `made` is made again.
    std::string made_of;
    Result<ExperimentObject> parsed = ExperimentObject();
    MadeObjects made;
    std::string trouble;
    bool space_ends = false;
    kube::TimePoint not_before{};
    std::chrono::milliseconds back_off{0};
  };

  void list();
  void reconcile(const std::string& key);
  Observed observe(const kube::Object& object);
  // Reads the experiment and makes its objects, if they are not made already.
  Status make(const Observed& observed, Memory* memory, Judgement* judgement);
  Result<TextMap> accounts(const Observed& observed);
  std::optional<nlohmann::json> exportJob(const nlohmann::json& object);
  // Returns the first failure; nullopt if there is none.
  std::optional<std::string> carryOut(const Plan& plan, const Observed& observed, Memory* memory);
  std::optional<std::string> apply(const nlohmann::json& object, Memory* memory);
  // Writes metadata.finalizers. Returns why the write failed; nothing if it succeeded, or if the
  // object has changed or is gone.
  std::optional<std::string> hold(const nlohmann::json& object, const std::string& version,
                                  const nlohmann::json& finalizers);
  void enqueue(const std::string& key);
  std::set<std::string> takeQueue(std::chrono::milliseconds wait);
  void await(const std::string& key);
  kube::Object find(const std::string& key) const;

  const ControllerOptions options_;
  kube::Api api_;
  kube::EventRecorder events_;
  std::vector<std::unique_ptr<kube::Reflector>> reflectors_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::string> queue_;

  // Keys to reconcile, the longest waiting first, and no key twice.
  std::deque<std::string> backlog_;
  std::set<std::string> in_backlog_;

  // Of the last listing, by "namespace/experiment".
  std::map<std::string, std::vector<nlohmann::json>> workloads_;
  std::map<std::string, std::vector<nlohmann::json>> pods_;
  std::optional<kube::TimePoint> listed_at_;
  bool listed_ = false;  // at least once
  std::map<std::string, Memory> memories_;
  Counts counts_;
};

}  // namespace allot
