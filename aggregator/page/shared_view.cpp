#include "aggregator/page/shared_view.h"

#include "aggregator/page/page.h"
#include "aggregator/page/run_view.h"
#include "aggregator/page/status_document.h"

namespace allot {

namespace {

// Replaces bytes that are not UTF-8: names come from workers.
std::string jsonText(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

SharedView::SharedView(Clock unix_now, Clock now)
    : unix_now_(std::move(unix_now)), now_(std::move(now)) {}

void SharedView::set(RunSnapshot snapshot, const std::string& run_id) {
  auto shared = std::make_shared<const RunSnapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  snapshot_.swap(shared);
  run_id_ = run_id;
  set_unix_ms_ = unix_now_();
  text_.reset();
  away_.clear();
}

void SharedView::keep(const std::string& why) {
  const std::lock_guard lock(mutex_);
  away_ = why;
}

HttpReply SharedView::reply(const std::string& path) {
  if (path == kStatusPath) return {200, "application/json", status()};
  return servePage(path, path == kViewPath ? serve() : "");
}

// Builds and copies the view without the lock, so that the main thread does not wait.
std::string SharedView::serve() {
  std::unique_lock lock(mutex_);
  asked_ = now_();
  const auto snapshot = snapshot_;
  auto text = text_;
  const std::string run_id = run_id_;
  const std::string away = away_;
  lock.unlock();
  if (!snapshot) return servedView("{}", unix_now_(), away);
  if (!text) {
    text = std::make_shared<const std::string>(
        jsonText(viewJson(runView(*snapshot, unix_now_(), run_id))));
    lock.lock();
    if (snapshot == snapshot_) text_ = text;
    lock.unlock();
  }
  return servedView(*text, unix_now_(), away);
}

std::string SharedView::status() const {
  std::unique_lock lock(mutex_);
  const auto snapshot = snapshot_;
  StatusReading reading{.now_unix_ms = unix_now_(), .stale_why = away_};
  if (!away_.empty()) reading.stale_since_unix_ms = set_unix_ms_;
  lock.unlock();
  RunSnapshot none;  // the run is not there yet
  none.lease.held = true;
  return jsonText(statusDocument(snapshot ? *snapshot : none, reading));
}

bool SharedView::isWatched() const {
  const std::lock_guard lock(mutex_);
  return asked_ != 0 && now_() - asked_ < 5000;
}

}  // namespace allot
