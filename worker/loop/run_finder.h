#pragma once
// RunFinder: finds the run that a worker works for: a named one, or the newest of an experiment.
// Owned by the worker's main thread; blocks on the store.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/result.h"
#include "store/outage.h"
#include "store/store.h"

namespace allot {

struct FoundRun {
  std::string id;
  RunSpec spec;
  std::unique_ptr<Store> store;
};

class RunFinder {
 public:
  // run_id: the run to find; "": the newest run of `experiment`. draining: ends every wait.
  // observer: observes the run's store and outlives it; may be null. on_wait: is called whenever a
  // wait for the run or the store begins.
  RunFinder(
      std::string redis, std::string run_id, std::string experiment,
      const std::atomic<bool>* draining, StoreObserver* observer = nullptr,
      std::function<void(const std::string& why)> on_wait = [](const std::string&) {})
      : redis_(std::move(redis)),
        run_id_(std::move(run_id)),
        experiment_(std::move(experiment)),
        draining_(*draining),
        observer_(observer),
        on_wait_(std::move(on_wait)) {}

  // Waits for the run, and for the store if it is away. Returns nothing once draining. Errors are
  // those that do not pass by waiting.
  Result<std::optional<FoundRun>> find();
  // Returns true if the experiment's newest run is not the one that find() returned last. Returns
  // false for a named run, and if the store does not answer or has no such run.
  bool moved() const;

  // Repeats a store call every 500 ms while it returns kUnavailable. Once draining, returns the
  // last error.
  template <typename Call>
  auto patiently(const Call& call) const -> decltype(call()) {
    Outage outage;
    while (true) {
      auto result = call();
      if (result || result.error().code != ErrorCode::kUnavailable || draining_) return result;
      if (outage.isNew(result.error().message)) reportAway(result.error());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }

 private:
  Result<std::optional<std::string>> newest() const;
  void reportAway(const Error& error) const;

  const std::string redis_, run_id_, experiment_;
  const std::atomic<bool>& draining_;
  StoreObserver* const observer_;
  const std::function<void(const std::string& why)> on_wait_;
  std::string found_;
};

}  // namespace allot
