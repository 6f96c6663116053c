#include "k8s/client/watch_lines.h"

#include <optional>

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

}  // namespace allot::kube
