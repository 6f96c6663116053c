#include "k8s/client/list_watch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "core/json_text.h"

namespace allot::kube {
namespace {

std::optional<EventType> typeOf(const std::string& word) {
  if (word == "ADDED") return EventType::kAdded;
  if (word == "MODIFIED") return EventType::kModified;
  if (word == "DELETED") return EventType::kDeleted;
  if (word == "BOOKMARK") return EventType::kBookmark;
  return std::nullopt;
}

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstWait{800};
constexpr milliseconds kLongestWait{30'000};
constexpr seconds kForgetFailures{120};
constexpr double kWatchSeconds = 300;
constexpr double kSpread = 0.2;
// A watch that ends sooner and brought nothing did not work, whatever the server called it.
constexpr milliseconds kShortestWatch{1000};

}  // namespace

Reply<void> WatchLines::feed(std::string_view bytes, const std::function<void(WatchEvent)>& take) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > longest_) {
      return noAnswer("TooLarge", "an event of the watch is longer than " +
                                      std::to_string(longest_) + " bytes");
    }
    if (end == std::string_view::npos) {
      line_ += part;
      return {};
    }
    bytes.remove_prefix(end + 1);
    // Most lines come whole: those are not copied.
    Reply<void> taken;
    if (line_.empty()) {
      taken = takeLine(part, take);
    } else {
      line_ += part;
      taken = takeLine(line_, take);
      line_.clear();
    }
    if (!taken) return taken;
  }
  return {};
}

Reply<void> WatchLines::takeLine(std::string_view line,
                                 const std::function<void(WatchEvent)>& take) const {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return {};
  auto event = parseJson(line, "an event of the watch");
  if (!event) return noAnswer("BadAnswer", serverText(event.error().message));
  const std::string type = textAt(*event, {"type"});
  const auto object = event->is_object() ? event->find("object") : event->end();
  if (!event->is_object() || object == event->end() || !object->is_object()) {
    return noAnswer("BadAnswer", "an event of the watch has no object");
  }
  if (type == "ERROR") {
    return tl::unexpected<ApiError>(errorFromStatus(*object, 500, "the watch"));
  }
  const auto known = typeOf(type);
  if (!known) {
    return noAnswer("BadAnswer",
                    "an event of the watch has the unknown type \"" + serverText(type) + "\"");
  }
  if (textAt(*object, {"metadata", "resourceVersion"}).empty()) {
    return noAnswer("BadAnswer", "an event of the watch has no resourceVersion");
  }
  take({*known, std::move(*object)});
  return {};
}

Random systemRandom() {
  auto engine = std::make_shared<std::mt19937_64>(std::random_device{}());
  return [engine] { return std::uniform_real_distribution<double>(0, 1)(*engine); };
}

milliseconds BackOff::next(TimePoint now) {
  if (failures_ > 0 && now - last_ > kForgetFailures) failures_ = 0;
  last_ = now;
  const milliseconds wait = std::min(kLongestWait, kFirstWait * (1 << std::min(failures_, 10)));
  ++failures_;
  const double longer = 1 + random_() / 2;
  return milliseconds(static_cast<int64_t>(static_cast<double>(wait.count()) * longer));
}

ListWatch::ListWatch(Random random) : random_(random), back_off_(std::move(random)) {}

ListWatch::Step ListWatch::next(TimePoint now) {
  if (now < not_before_) return {.what = Step::What::kWait, .until = not_before_};
  if (resource_version_.empty()) return {.what = Step::What::kList};
  // Watches get different timeouts: those that began together do not end together.
  const double share = 1 - kSpread + 2 * kSpread * random_();
  events_ = 0;
  return {.what = Step::What::kWatch,
          .resource_version = resource_version_,
          .timeout = seconds(static_cast<int64_t>(kWatchSeconds * share))};
}

void ListWatch::listed(std::string resource_version) {
  resource_version_ = std::move(resource_version);
  list_failures_ = 0;
}

void ListWatch::listFailed(TimePoint now, const ApiError& error) {
  forget();
  ++list_failures_;
  pause(now, &error);
}

void ListWatch::saw(const WatchEvent& event) {
  resource_version_ = textAt(event.object, {"metadata", "resourceVersion"});
  watch_failures_ = 0;
  if (event.type != EventType::kBookmark) ++events_;
}

void ListWatch::watchEnded(TimePoint began, TimePoint now, const Reply<void>& ended) {
  if (ended) {
    if (events_ == 0 && now - began < kShortestWatch) {
      ++watch_failures_;
      pause(now, nullptr);
    } else {
      watch_failures_ = 0;
    }
    return;
  }
  const ApiError& error = ended.error();
  // A line that cannot be read would come again and again from the same place; a list goes past it.
  if (error.expired() || error.reason == "TooLarge" || error.reason == "BadAnswer") forget();
  ++watch_failures_;
  pause(now, &error);
}

void ListWatch::pause(TimePoint now, const ApiError* error) {
  milliseconds wait = back_off_.next(now);
  if (error != nullptr && error->retry_after) {
    wait = std::max<milliseconds>(wait, *error->retry_after);
  }
  not_before_ = now + wait;
}

}  // namespace allot::kube
