#pragma once
// Health: whether a process has started, is alive and is ready, as /startedz, /livez and /readyz
// say it.
//
// Started means that it has loaded what it needs, or waits for what it cannot bring itself. Alive
// means that it makes progress: a Redis that is away makes a process unready, never dead, for
// starting it again would only load the model again. Owned by Telemetry; any thread.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace allot {

class Health {
 public:
  // Silence of the main loop after which the process counts as stuck.
  static constexpr uint64_t kStuckMs = 120'000;
  // Silence of a store that is being asked after which the process counts as unready.
  static constexpr uint64_t kStoreAwayMs = 15'000;

  struct Answer {
    bool good = false;
    std::string sentence;
  };

  // now: monotonic milliseconds. It begins as loading.
  explicit Health(std::function<uint64_t()> now);

  // Something long goes on (a model is loaded): not started, unready, and nobody asks for progress
  // until the next progress().
  void loading(std::string why);
  // Waits for others, for as long as it takes: started and unready, and nobody asks for progress.
  void waiting(std::string why);
  // A round of the main loop, a decode step: whatever shows that the process is not stuck.
  void progress();
  // Can do its work, as far as it is up to the process itself.
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
  bool store_away_ = false;  // the newest request had no answer
  std::optional<uint64_t> store_answered_ms_;
};

}  // namespace allot
