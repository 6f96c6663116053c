#pragma once
// Health: whether a process has started, is alive and is ready, for /startedz, /livez and /readyz.
//
// Started: it has loaded what it needs, or waits for other processes. Alive: it makes progress. A
// Redis that is away makes a process unready, never dead: a restart would only load the model
// again. Owned by Telemetry; any thread.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace allot {

class Health {
 public:
  // The process counts as stuck after this silence of its main loop.
  static constexpr uint64_t kStuckMs = 120'000;
  // The process counts as unready after this silence of a store that is being asked.
  static constexpr uint64_t kStoreAwayMs = 15'000;

  struct Answer {
    bool good = false;
    std::string sentence;
  };

  // now: monotonic milliseconds. The initial state is loading.
  explicit Health(std::function<uint64_t()> now);

  // A long operation runs (a model is loaded): not started and unready. No progress is expected
  // until the next progress().
  void loading(std::string why);
  // It waits for other processes without limit: started and unready. No progress is expected.
  void waiting(std::string why);
  // Notes a sign of life: a round of the main loop, a decode step.
  void progress();
  // It can work, as far as that depends on the process itself.
  void ready();
  void unready(std::string why);
  void storeAnswered();
  void storeDidNotAnswer();

  Answer started() const;
  Answer live() const;
  Answer readiness() const;

 private:
  std::function<uint64_t()> now_;
  mutable std::mutex mutex_;
  enum class Phase { kLoading, kWaiting, kWorking };
  Phase phase_ = Phase::kLoading;
  std::string why_unready_ = "it starts";  // empty: ready
  uint64_t progressed_ms_ = 0;
  bool store_away_ = false;  // the newest request got no answer
  std::optional<uint64_t> store_answered_ms_;
};

}  // namespace allot
