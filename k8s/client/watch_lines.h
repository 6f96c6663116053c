#pragma once
// WatchLines: assembles the events of a watch from bytes that the transport splits anywhere. Pure;
// its owner feeds it on one thread.
//
// A watch has one JSON object a line. The limit is on a line and not on a read, since an object may
// be larger than 1.5 MB.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "k8s/client/api_error.h"

namespace allot::kube {

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  EventType type = EventType::kAdded;
  nlohmann::json object;
};

class WatchLines {
 public:
  static constexpr size_t kLongestLine = size_t{8} << 20;

  explicit WatchLines(size_t longest_line = kLongestLine) : longest_(longest_line) {}

  // Calls `take` for each event whose line is complete, in order. Errors end the watch; `take` was
  // called for the events before them. "TooLarge" for a line over the limit, "BadAnswer" for one
  // that is no event. An event of type ERROR is the server's error (410 if it has forgotten the
  // resourceVersion).
  Reply<void> feed(std::string_view bytes, const std::function<void(WatchEvent)>& take);

  // Returns true if the stream ended inside a line: the connection was cut.
  bool insideLine() const { return !line_.empty(); }

 private:
  Reply<void> takeLine(std::string_view line, const std::function<void(WatchEvent)>& take) const;

  size_t longest_;
  std::string line_;  // the beginning of an incomplete line
};

}  // namespace allot::kube
