#include "aggregator/page/shared_view.h"

#include "aggregator/page/page.h"
#include "aggregator/page/run_view.h"

namespace allot {

SharedView::SharedView(Clock unix_now, Clock now)
    : unix_now_(std::move(unix_now)), now_(std::move(now)) {}

void SharedView::set(RunSnapshot snapshot, const std::string& run_id) {
  auto shared = std::make_shared<const RunSnapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  snapshot_.swap(shared);
  run_id_ = run_id;
  text_.reset();
  away_.clear();
}

void SharedView::keep(const std::string& why) {
  const std::lock_guard lock(mutex_);
  away_ = why;
}

HttpReply SharedView::reply(const std::string& path) {
  return servePage(path, path == kViewPath ? serve() : "");
}

// Made and copied outside of the lock: the main thread does not wait for this.
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
    // Names come from workers and may hold anything.
    text = std::make_shared<const std::string>(
        viewJson(runView(*snapshot, unix_now_(), run_id))
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    lock.lock();
    if (snapshot == snapshot_) text_ = text;
    lock.unlock();
  }
  return servedView(*text, unix_now_(), away);
}

bool SharedView::isWatched() const {
  const std::lock_guard lock(mutex_);
  return asked_ != 0 && now_() - asked_ < 5000;
}

}  // namespace allot
