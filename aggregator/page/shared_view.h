#pragma once
// SharedView: what the page's thread serves and the main thread replaces. Thread-safe.
//
// The view is made where it is asked for: nobody may be watching.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "aggregator/snapshot.h"
#include "core/telemetry/http_server.h"

namespace allot {

class SharedView {
 public:
  using Clock = std::function<uint64_t()>;  // ms

  // unix_now: Unix time; now: monotonic.
  SharedView(Clock unix_now, Clock now);

  void set(RunSnapshot snapshot, const std::string& run_id);
  // There is no newer one, and why.
  void keep(const std::string& why);
  // The page's answer to a path (page.h), and the run's status. Only who asks has it made.
  HttpReply reply(const std::string& path);
  // True if somebody has a page open, which asks every two seconds.
  bool isWatched() const;

 private:
  std::string serve();
  std::string status() const;

  const Clock unix_now_;
  const Clock now_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RunSnapshot> snapshot_;
  std::string run_id_;
  uint64_t set_unix_ms_ = 0;
  std::shared_ptr<const std::string> text_;  // of the snapshot; null: nobody has asked
  std::string away_;
  uint64_t asked_ = 0;
};

}  // namespace allot
