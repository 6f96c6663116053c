#include "worker/loop/run_finder.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace allot {
namespace {

constexpr uint64_t kTimeoutMs = 5000;
// The wait between two searches for a run that does not exist yet.
constexpr auto kFirstPause = std::chrono::milliseconds(200);
constexpr auto kLongestPause = std::chrono::milliseconds(2500);

}  // namespace

void RunFinder::reportAway(const Error& error) const {
  spdlog::warn("{}; waiting", error.message);
  on_wait_("it waits for the store");
}

Result<std::optional<std::string>> RunFinder::newest() const {
  if (!run_id_.empty()) return run_id_;
  return findRun(redis_, experiment_);
}

Result<std::optional<FoundRun>> RunFinder::find() {
  bool told = false;
  auto pause = kFirstPause;
  while (!draining_) {  // the aggregator creates the run
    auto id = patiently([&] { return newest(); });
    if (!id && draining_) break;
    if (!id) return tl::unexpected(id.error());
    if (*id) {
      ALLOT_ASSIGN(auto store, openRedisStore(redis_, **id, kTimeoutMs, observer_));
      auto spec = patiently([&] { return store->readSpec(); });
      if (!spec && draining_) break;
      if (!spec) return tl::unexpected(spec.error());
      if (*spec) {
        found_ = **id;
        return FoundRun{found_, std::move(**spec), std::move(store)};
      }
    }
    if (!told) {
      spdlog::info("there is no run yet: waiting for the aggregator to begin it");
      on_wait_("it waits for its run");
    }
    told = true;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  return std::nullopt;
}

bool RunFinder::moved() const {
  if (!run_id_.empty()) return false;
  const auto id = newest();
  return id && *id && **id != found_;
}

}  // namespace allot
