// Events: named by what they say, counted, at most one a minute for an object and a reason.
#include "k8s/client/events.h"

#include <gmock/gmock.h>

#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/client/kube_objects.h"

namespace allot::kube::test {
namespace {

using testing::SizeIs;

json about(const std::string& name) {
  json object = experiment(name, 1);
  object["metadata"]["uid"] = "u-" + name;
  return object;
}
EventNote note(const std::string& name, const std::string& reason, const std::string& text) {
  return {about(name), false, reason, "Reconcile", text};
}

class EventTest : public testing::Test {
 protected:
  std::unique_ptr<EventRecorder> recorder() {
    return std::make_unique<EventRecorder>(
        client_, EventSource{"allot.dev/operator", "pod-1"}, [this] { return now_; },
        [] { return WallTime(seconds(1'800'000'000)); });
  }
  static void tell(const std::unique_ptr<EventRecorder>& events, const std::string& name,
                   const std::string& reason, const std::string& text) {
    events->add(note(name, reason, text));
    events->send();
  }
  std::vector<json> stored() { return api_.store().all("events"); }

  FakeApi api_;
  Api client_{api_.access()};
  TimePoint now_{seconds(1000)};
};

TEST_F(EventTest, SaysWhatTheServerDemands) {
  auto events = recorder();
  tell(events, "x", "Started", "the run has begun");
  ASSERT_THAT(stored(), SizeIs(1));
  json event = stored()[0];
  const std::string name = event["metadata"]["name"];
  EXPECT_TRUE(name.starts_with("x.") && name.size() == 18) << name;
  event.erase("metadata");
  EXPECT_EQ(event, json({{"apiVersion", "events.k8s.io/v1"},
                         {"kind", "Event"},
                         {"eventTime", "2027-01-15T08:00:00.000000Z"},
                         {"reportingController", "allot.dev/operator"},
                         {"reportingInstance", "pod-1"},
                         {"regarding",
                          {{"apiVersion", "allot.dev/v1alpha1"},
                           {"kind", "Experiment"},
                           {"namespace", "ns"},
                           {"name", "x"},
                           {"uid", "u-x"}}},
                         {"type", "Normal"},
                         {"reason", "Started"},
                         {"action", "Reconcile"},
                         {"note", "the run has begun"}}));
}

TEST_F(EventTest, TheSameAgainIsCountedOnceAMinute) {
  auto events = recorder();
  for (int i = 0; i < 60; ++i) {
    tell(events, "x", "WorkerFailed", "no such folder");
    now_ += seconds(1);
  }
  EXPECT_EQ(api_.writes(), 1u);
  tell(events, "x", "WorkerFailed", "no such folder");
  EXPECT_EQ(api_.writes(), 2u);
  ASSERT_THAT(stored(), SizeIs(1));
  EXPECT_EQ(stored()[0]["series"]["count"], 61);
  // Nothing new: nothing is sent.
  now_ += seconds(300);
  events->send();
  EXPECT_EQ(api_.writes(), 2u);
}

TEST_F(EventTest, OneAMinuteForEachObjectAndReason) {
  auto events = recorder();
  tell(events, "x", "Evaluated", "update 25");
  tell(events, "x", "Evaluated", "update 50");
  tell(events, "x", "Evaluated", "update 75");
  EXPECT_THAT(stored(), SizeIs(1));
  tell(events, "x", "Scaled", "4 workers");
  tell(events, "y", "Evaluated", "update 25");
  EXPECT_THAT(stored(), SizeIs(3));
  // The newest was kept, and comes without being added again.
  now_ += seconds(60);
  events->send();
  ASSERT_THAT(stored(), SizeIs(4));
  int newest = 0;
  for (const auto& event : stored()) newest += event["note"] == "update 75";
  EXPECT_EQ(newest, 1);
}

TEST_F(EventTest, WhoIsStartedAnewGoesOnCounting) {
  recorder()->send();
  for (int i = 1; i <= 3; ++i) {
    auto events = recorder();
    tell(events, "x", "Started", "the run has begun");
    ASSERT_THAT(stored(), SizeIs(1));
    EXPECT_EQ(numberAt(stored()[0], {"series", "count"}), i == 1 ? 0 : i);
  }
  // The server has forgotten it meanwhile.
  auto events = recorder();
  tell(events, "x", "Started", "the run has begun");
  client_.remove(eventResource(), nameOf(stored()[0]));
  now_ += seconds(60);
  tell(events, "x", "Started", "the run has begun");
  ASSERT_THAT(stored(), SizeIs(1));
  EXPECT_FALSE(stored()[0].contains("series"));
}

TEST_F(EventTest, NotesAreCutAtWholeCharacters) {
  auto events = recorder();
  std::string text;
  for (int i = 0; i < 600; ++i) text += "\xc3\xa4";
  tell(events, "x", "Long", text);
  ASSERT_THAT(stored(), SizeIs(1));
  const std::string kept = stored()[0]["note"];
  EXPECT_LE(kept.size(), 1024u);
  EXPECT_GE(kept.size(), 1022u);
  EXPECT_TRUE(kept.ends_with("\xc3\xa4..."));
}

TEST_F(EventTest, WhatCannotBeSentIsDropped) {
  auto events = recorder();
  api_.script({.method = "POST", .status = 403, .body = statusText(403, "Forbidden", "no")});
  tell(events, "x", "Started", "the run has begun");
  events->send();
  EXPECT_EQ(api_.writes(), 1u);
}

TEST(EventBook, DoesNotGrowWithoutEnd) {
  EventBook book({"c", "i"});
  TimePoint now{seconds(0)};
  for (size_t i = 0; i < EventBook::kMostKeys + 10; ++i) {
    book.add(now, note("x" + std::to_string(i), "R", "t"));
  }
  EXPECT_EQ(book.due(now, WallTime()).size(), EventBook::kMostKeys);
  // An hour later others have their turn.
  now += std::chrono::hours(1) + seconds(1);
  book.add(now, note("fresh", "R", "t"));
  EXPECT_EQ(book.due(now, WallTime()).size(), 1u);
}

}  // namespace
}  // namespace allot::kube::test
