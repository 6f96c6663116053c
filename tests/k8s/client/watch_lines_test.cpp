// The decoder of a watch: the same events wherever the transport splits them.
#include "k8s/client/list_watch.h"

#include "tests/k8s/client/kube_objects.h"
#include "tests/results.h"

namespace allot::kube::test {
namespace {

std::string textOf(const WatchEvent& event) {
  return std::to_string(static_cast<int>(event.type)) + " " +
         textAt(event.object, {"metadata", "name"}) + "@" +
         textAt(event.object, {"metadata", "resourceVersion"});
}

const std::string& threeEvents() {
  static const std::string text =
      eventLine("ADDED", withVersion(configMap("a", "line\nbreak \xc3\xa4"), "7")) + "\r\n" +
      eventLine("DELETED", withVersion(configMap("b", "}{"), "9")) +
      eventLine("BOOKMARK", {{"metadata", {{"resourceVersion", "12"}}}});
  return text;
}

TEST(WatchLines, SplitAtEachByte) {
  const std::string& text = threeEvents();
  for (size_t at = 0; at <= text.size(); ++at) {
    WatchLines lines;
    std::vector<std::string> seen;
    const auto take = [&](const WatchEvent& event) { seen.push_back(textOf(event)); };
    ASSERT_TRUE(lines.feed(std::string_view(text).substr(0, at), take)) << at;
    ASSERT_TRUE(lines.feed(std::string_view(text).substr(at), take)) << at;
    ASSERT_THAT(seen, ElementsAre("0 a@7", "2 b@9", "3 @12")) << at;
    EXPECT_FALSE(lines.insideLine());
  }
}

TEST(WatchLines, ByteByByte) {
  WatchLines lines;
  std::vector<std::string> seen;
  for (const char c : threeEvents()) {
    ASSERT_TRUE(
        lines.feed({&c, 1}, [&](const WatchEvent& event) { seen.push_back(textOf(event)); }));
  }
  EXPECT_THAT(seen, ElementsAre("0 a@7", "2 b@9", "3 @12"));
}

TEST(WatchLines, HalfALineIsNoEvent) {
  WatchLines lines;
  const std::string text = threeEvents().substr(0, 40);
  ASSERT_TRUE(lines.feed(text, [](const WatchEvent&) { FAIL(); }));
  EXPECT_TRUE(lines.insideLine());
}

TEST(WatchLines, TheLimitIsOnTheLine) {
  const std::string text =
      eventLine("ADDED", withVersion(configMap("a", std::string(500, 'x')), "1"));
  // Many lines at once are no longer line.
  WatchLines enough(text.size());
  int seen = 0;
  ASSERT_TRUE(enough.feed(text + text + text, [&](const WatchEvent&) { ++seen; }));
  EXPECT_EQ(seen, 3);
  // Neither whole nor in pieces.
  for (const size_t piece : {text.size(), size_t{1}}) {
    WatchLines lines(text.size() - 2);
    Reply<void> fed;
    for (size_t i = 0; fed && i < text.size(); i += piece) {
      fed = lines.feed(std::string_view(text).substr(i, piece), [](const WatchEvent&) { FAIL(); });
    }
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().reason, "TooLarge");
  }
}

TEST(WatchLines, WhatIsNoEvent) {
  for (const std::string& line :
       {std::string("{"), std::string("[]"), std::string(R"({"type":"ADDED"})"),
        std::string(R"({"type":"ADDED","object":7})"),
        std::string(R"({"type":"ADDED","object":{"metadata":{"name":"a"}}})"),
        std::string(R"({"type":7,"object":{"metadata":{"resourceVersion":"1"}}})"),
        std::string(R"({"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}})"),
        std::string(100, '[')}) {
    WatchLines lines;
    const auto fed = lines.feed(line + "\n", [](const WatchEvent&) { FAIL(); });
    ASSERT_FALSE(fed) << line;
    EXPECT_EQ(fed.error().reason, "BadAnswer") << line;
    EXPECT_EQ(fed.error().code, 0) << line;
  }
}

TEST(WatchLines, AnErrorEventIsTheServersWord) {
  WatchLines lines;
  int seen = 0;
  const auto fed =
      lines.feed(eventLine("ADDED", withVersion(configMap("a", "1"), "7")) +
                     eventLine("ERROR", nlohmann::json::parse(statusText(
                                            410, "Expired", "too old\x1b[31m resource version"))),
                 [&](const WatchEvent&) { ++seen; });
  EXPECT_EQ(seen, 1);
  ASSERT_FALSE(fed);
  EXPECT_TRUE(fed.error().expired());
  EXPECT_EQ(fed.error().reason, "Expired");
  EXPECT_THAT(fed.error().message, HasSubstr("too old\\x1b[31m resource version"));
}

}  // namespace
}  // namespace allot::kube::test
