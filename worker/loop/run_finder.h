#pragma once
// RunFinder: which run a worker works for: the one that it was named, or the newest one of an
// experiment. Owned by the worker's main thread; blocks on the store.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/result.h"
#include "store/store.h"

namespace allot {

struct FoundRun {
  std::string id;
  RunSpec spec;
  std::unique_ptr<Store> store;
};

class RunFinder {
 public:
  // run_id: this run; "": the newest of `experiment`. `draining` ends every wait. observer: of the
  // run's store, which it outlives; may be null. on_wait: called whenever a wait begins, for the
  // run or for the store.
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

  // Waits until the run is there, and the store if that is away; nothing once draining. Errors are
  // those that waiting cannot mend.
  Result<std::optional<FoundRun>> find();
  // Whether the experiment's newest run is another one than find() gave last.
  bool moved() const;

  // Repeats a store call until the store answers; gives up only once draining.
  template <typename Call>
  auto patiently(const Call& call) const -> decltype(call()) {
    bool told = false;
    while (true) {
      auto result = call();
      if (result || result.error().code != ErrorCode::kUnavailable || draining_) return result;
      if (!told) reportAway(result.error());
      told = true;
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
