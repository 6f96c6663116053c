#include "k8s/client/events.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "core/digest.h"
#include "core/utf8.h"

namespace allot::kube {
namespace {

using nlohmann::json;

constexpr size_t kLongestNote = 1024;
constexpr size_t kLongestWord = 128;  // reason and action
constexpr size_t kLongestNamePart = 200;
constexpr size_t kDigits = 16;
constexpr std::chrono::hours kSilence{1};

// Returns whole characters of the text, at most `most` bytes.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  constexpr std::string_view kEllipsis = "...";
  size_t end = 0;
  while (end < text.size()) {
    const size_t next = std::max<size_t>(1, utf8Length(std::string_view(text).substr(end)));
    if (end + next > most - kEllipsis.size()) break;
    end += next;
  }
  return text.substr(0, end) + std::string(kEllipsis);
}

std::string idOf(const json& object) {
  return textAt(object, {"kind"}) + "/" + keyOf(object) + "/" + textAt(object, {"metadata", "uid"});
}

std::string nameOfEvent(const EventNote& note) {
  const std::string digest = sha256Hex(
      json::array({idOf(note.regarding), note.reason, note.action, note.warning, note.note})
          .dump(-1, ' ', false, json::error_handler_t::replace));
  // No part of a name between dots may end in a dash.
  std::string name = nameOf(note.regarding).name.substr(0, kLongestNamePart);
  while (!name.empty() && (name.back() == '.' || name.back() == '-')) name.pop_back();
  return name + "." + digest.substr(0, kDigits);
}

json written(const EventNote& note, const EventSource& source, WallTime wall) {
  const json& object = note.regarding;
  const std::string space = nameOf(object).space;
  json regarding = {{"apiVersion", textAt(object, {"apiVersion"})},
                    {"kind", textAt(object, {"kind"})},
                    {"name", nameOf(object).name},
                    {"uid", textAt(object, {"metadata", "uid"})}};
  if (!space.empty()) regarding["namespace"] = space;
  return {
      {"apiVersion", eventResource().apiVersion()},
      {"kind", eventResource().kind},
      // kubectl looks in `default` for the events of objects without a namespace.
      {"metadata", {{"name", nameOfEvent(note)}, {"namespace", space.empty() ? "default" : space}}},
      {"eventTime", microTime(wall)},
      {"reportingController", source.controller},
      {"reportingInstance", cut(source.instance, kLongestWord)},
      {"regarding", std::move(regarding)},
      {"type", note.warning ? "Warning" : "Normal"},
      {"reason", note.reason},
      {"action", note.action},
      {"note", note.note}};
}

}  // namespace

const Resource& eventResource() {
  static const Resource resource{"events.k8s.io", "v1", "events", "Event"};
  return resource;
}

void EventBook::add(TimePoint now, const EventNote& note) {
  forgetSilent(now);
  EventNote kept = note;
  kept.note = cut(note.note, kLongestNote);
  kept.reason = cut(note.reason, kLongestWord);
  kept.action = cut(note.action, kLongestWord);
  const auto key = std::make_pair(idOf(note.regarding), kept.reason);
  if (entries_.size() >= kMostKeys && !entries_.contains(key)) return;
  Entry& entry = entries_[key];
  const bool same = entry.count > 0 && nameOfEvent(entry.waiting) == nameOfEvent(kept);
  entry.count = same ? entry.count + 1 : 1;
  entry.waiting = std::move(kept);
  entry.touched_at = now;
}

std::vector<EventBook::Due> EventBook::due(TimePoint now, WallTime wall) {
  std::vector<Due> due;
  for (auto& [key, entry] : entries_) {
    if (entry.count == 0 || (entry.sent_at && now - *entry.sent_at < kPause)) continue;
    json event = written(entry.waiting, source_, wall);
    const std::string name = nameOf(event).name;
    due.push_back({std::move(event), entry.count, entry.sent == name});
    entry.sent = name;
    entry.sent_at = now;
    entry.count = 0;
  }
  return due;
}

void EventBook::forgetSilent(TimePoint now) {
  if (entries_.size() < kMostKeys) return;
  std::erase_if(entries_, [now](const auto& item) {
    return item.second.count == 0 && now - item.second.touched_at > kSilence;
  });
}

void EventRecorder::send() {
  for (const auto& due : book_.due(clock_(), wall_clock_())) {
    Reply<void> sent;
    if (due.known) {
      sent = count(due);
    } else {
      json event = due.event;
      if (due.count > 1) {
        event["series"] = {{"count", due.count}, {"lastObservedTime", event["eventTime"]}};
      }
      const auto made = api_.create(eventResource(), event);
      if (!made) sent = tl::unexpected<ApiError>(made.error());
      // This process or an earlier one has created the event already.
      if (!made && made.error().conflict()) sent = count(due);
    }
    if (!sent) {
      spdlog::warn("the event {} about {} is not told: {}", textAt(due.event, {"reason"}),
                   textAt(due.event, {"regarding", "name"}), sent.error().message);
    }
  }
}

// Adds to the count of an event. Creates it if the server no longer has it: servers usually keep
// events for an hour.
Reply<void> EventRecorder::count(const EventBook::Due& due) {
  const ObjectName name = nameOf(due.event);
  const auto old = api_.get(eventResource(), name);
  Reply<json> done;
  if (!old && old.error().notFound()) {
    done = api_.create(eventResource(), due.event);
  } else if (!old) {
    done = old;
  } else {
    const int64_t before = std::max<int64_t>(1, numberAt(*old, {"series", "count"}));
    done = api_.mergePatch(
        eventResource(), name,
        {{"series",
          {{"count", before + due.count}, {"lastObservedTime", due.event["eventTime"]}}}});
  }
  if (!done) return tl::unexpected<ApiError>(done.error());
  return {};
}

}  // namespace allot::kube
