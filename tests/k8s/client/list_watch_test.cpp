// The state machine of list and watch, with a clock and a die of the test's own.
#include "k8s/client/list_watch.h"

#include <gmock/gmock.h>

#include "tests/k8s/client/kube_objects.h"

namespace allot::kube::test {
namespace {

ApiError apiError(int code, std::string reason = {}) {
  return {code, std::move(reason), "sentence", std::nullopt};
}
tl::unexpected<ApiError> endedBy(ApiError error) {
  return tl::unexpected<ApiError>(std::move(error));
}

class ListWatchTest : public testing::Test {
 protected:
  using What = ListWatch::Step::What;

  ListWatch::Step next() { return machine_.next(now_); }
  // Waits as it is told; returns how long.
  milliseconds pause() {
    const auto step = next();
    if (step.what != What::kWait) return milliseconds(0);
    const auto wait = std::chrono::duration_cast<milliseconds>(step.until - now_);
    EXPECT_EQ(machine_.next(step.until - milliseconds(1)).what, What::kWait);
    now_ = step.until;
    return wait;
  }
  void watchUntil(milliseconds time, const Reply<void>& ended) {
    const TimePoint began = now_;
    now_ += time;
    machine_.watchEnded(began, now_, ended);
  }

  TimePoint now_{seconds(1000)};
  double die_ = 0;
  ListWatch machine_{[this] { return die_; }};
};

TEST_F(ListWatchTest, WatchesFromTheListsVersionAndThenFromTheNewest) {
  EXPECT_EQ(next().what, What::kList);
  machine_.listed("55");
  EXPECT_EQ(next().what, What::kWatch);
  EXPECT_EQ(next().resource_version, "55");
  // Opaque: neither the greater nor a number.
  machine_.saw({EventType::kModified, withVersion(configMap("a", "1"), "12")});
  watchUntil(seconds(300), {});
  EXPECT_EQ(next().resource_version, "12");
  machine_.saw({EventType::kDeleted, withVersion(configMap("a", "1"), "abc")});
  watchUntil(seconds(300), {});
  EXPECT_EQ(next().resource_version, "abc");
  machine_.saw({EventType::kBookmark, {{"metadata", {{"resourceVersion", "99"}}}}});
  watchUntil(seconds(300), {});
  EXPECT_EQ(next().resource_version, "99");
  EXPECT_EQ(machine_.failures(), 0);
}

TEST_F(ListWatchTest, WatchesLastFiveMinutesMoreOrLess) {
  machine_.listed("1");
  EXPECT_EQ(next().timeout, seconds(240));
  die_ = 0.5;
  EXPECT_EQ(next().timeout, seconds(300));
  die_ = 0.999;
  EXPECT_EQ(next().timeout, seconds(359));
}

TEST_F(ListWatchTest, ExpiredMeansToListAgain) {
  // The same, whether by status or by an event of the stream.
  machine_.listed("1");
  machine_.saw({EventType::kAdded, withVersion(configMap("a", "1"), "2")});
  watchUntil(seconds(10), endedBy(apiError(410, "Expired")));
  EXPECT_EQ(pause(), milliseconds(800));
  EXPECT_EQ(next().what, What::kList);
}

TEST_F(ListWatchTest, OtherFailuresKeepTheirPlace) {
  machine_.listed("1");
  for (const auto& error : {apiError(500), apiError(429), apiError(403), apiError(0, "Timeout"),
                            apiError(0, "Unavailable")}) {
    watchUntil(seconds(200), endedBy(error));
    EXPECT_GT(pause(), milliseconds(0));
    EXPECT_EQ(next().what, What::kWatch) << error.reason;
    EXPECT_EQ(next().resource_version, "1");
  }
}

TEST_F(ListWatchTest, ALineThatCannotBeReadIsPassedByAList) {
  for (const char* reason : {"TooLarge", "BadAnswer"}) {
    machine_.listed("1");
    watchUntil(seconds(200), endedBy(apiError(0, reason)));
    pause();
    EXPECT_EQ(next().what, What::kList) << reason;
  }
}

TEST_F(ListWatchTest, BacksOff) {
  const std::vector<int> expected = {800, 1600, 3200, 6400, 12'800, 25'600, 30'000, 30'000};
  for (const int wait : expected) {
    machine_.listFailed(now_, apiError(500));
    EXPECT_EQ(pause().count(), wait);
  }
  // With the highest throw half as long again.
  die_ = 1;
  machine_.listFailed(now_, apiError(500));
  EXPECT_EQ(pause(), milliseconds(45'000));
  die_ = 0;
  // A success in between is not yet forgiveness, two quiet minutes are.
  machine_.listed("1");
  watchUntil(seconds(120 - 45), endedBy(apiError(500)));
  EXPECT_EQ(pause(), milliseconds(30'000));
  watchUntil(seconds(121 - 30), endedBy(apiError(500)));
  EXPECT_EQ(pause(), milliseconds(800));
}

TEST_F(ListWatchTest, WaitsAsLongAsTheServerAsks) {
  ApiError error = apiError(429);
  error.retry_after = seconds(17);
  machine_.listFailed(now_, error);
  EXPECT_EQ(pause(), seconds(17));
  error.retry_after = seconds(1);  // less than the second step
  machine_.listFailed(now_, error);
  EXPECT_EQ(pause(), milliseconds(1600));
}

TEST_F(ListWatchTest, AWatchThatEndsAtOnceWithoutEventsFailed) {
  machine_.listed("1");
  watchUntil(milliseconds(999), {});
  EXPECT_EQ(machine_.failures(), 1);
  EXPECT_EQ(pause(), milliseconds(800));
  next();
  // A bookmark alone is no event.
  machine_.saw({EventType::kBookmark, {{"metadata", {{"resourceVersion", "2"}}}}});
  watchUntil(milliseconds(10), {});
  EXPECT_EQ(pause(), milliseconds(1600));
  EXPECT_EQ(next().resource_version, "2");
  machine_.saw({EventType::kAdded, withVersion(configMap("a", "1"), "3")});
  watchUntil(milliseconds(10), {});
  EXPECT_EQ(pause(), milliseconds(0));
  EXPECT_EQ(next().what, What::kWatch);
  watchUntil(milliseconds(1000), {});
  EXPECT_EQ(pause(), milliseconds(0));
  EXPECT_EQ(machine_.failures(), 0);
}

TEST_F(ListWatchTest, AListThatWorksDoesNotExcuseTheWatch) {
  for (int i = 1; i <= 3; ++i) {
    machine_.listed("1");
    watchUntil(milliseconds(1), endedBy(apiError(410)));
    EXPECT_EQ(machine_.failures(), i);
  }
  machine_.listFailed(now_, apiError(403));
  machine_.listed("1");
  EXPECT_EQ(machine_.failures(), 3);
  machine_.saw({EventType::kAdded, withVersion(configMap("a", "1"), "3")});
  EXPECT_EQ(machine_.failures(), 0);
}

}  // namespace
}  // namespace allot::kube::test
