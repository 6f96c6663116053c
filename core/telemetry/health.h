#pragma once
// Health: whether a process has started, is alive and is ready, for /startedz, /livez and /readyz.
//
// A process has started once it has loaded what it needs or waits for other processes. It is alive
// while it makes progress, loads or waits. A store that is away makes a process unready, never
// dead: a restart would only load the model again. Owned by Telemetry; any thread.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace allot {

class Health {
 public:
  // A process that neither loads nor waits counts as dead after this time without progress().
  static constexpr uint64_t kStuckMs = 120'000;
  // The process counts as unready after this time without an answer of a store that is asked.
  static constexpr uint64_t kStoreAwayMs = 15'000;

  struct Answer {
    bool good = false;
    std::string sentence;
  };

  // now: returns monotonic milliseconds. The initial state is loading.
  explicit Health(std::function<uint64_t()> now);

  // Notes a long operation (a model is loaded): not started, unready, and alive without progress().
  void loading(std::string why);
  // Notes a wait for other processes: started, unready, and alive without progress().
  void waiting(std::string why);
  // Notes a sign of life, as a round of the main loop or a decode step; ends loading and waiting.
  void progress();
  // Note whether the process can work, apart from whether the store answers.
  void ready();
  void unready(std::string why);
  // Note the outcome of a request to the store.
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
