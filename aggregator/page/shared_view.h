#pragma once
// SharedView: the state that the main thread sets and the page's thread serves. Thread-safe. The
// view is computed on request, since often no page is open.
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
  // Notes that no newer snapshot is available, and why.
  void keep(const std::string& why);
  // Serves the page's paths (page.h) and the status document. The view is computed at the first
  // request after set(), the status at each request.
  HttpReply reply(const std::string& path);
  // Returns true if /api/run was requested in the last 5 s. The page of a run that goes on requests
  // it every two seconds.
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
  std::shared_ptr<const std::string> text_;  // of the snapshot; null: not requested yet
  std::string away_;
  uint64_t asked_ = 0;
};

}  // namespace allot
