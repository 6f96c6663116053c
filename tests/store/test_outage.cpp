// What a process logs while its store does not answer: each reason once, also one that comes later.
#include "store/outage.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "tests/store/fake_server.h"
#include "worker/loop/run_finder.h"

namespace allot {
namespace {

using testing::HasSubstr;

TEST(Outage, EachReasonIsNewOnce) {
  Outage outage;
  EXPECT_FALSE(outage.end());
  EXPECT_TRUE(outage.isNew("refused"));
  EXPECT_FALSE(outage.isNew("refused"));
  EXPECT_TRUE(outage.isNew("another certificate"));
  EXPECT_FALSE(outage.isNew("refused"));
  EXPECT_TRUE(outage.end());
  EXPECT_TRUE(outage.isNew("refused"));
  int told = 0;
  for (int i = 0; i < 100; ++i) told += outage.isNew("reason " + std::to_string(i)) ? 1 : 0;
  EXPECT_EQ(told, 7);
}

// A worker that starts before its store, and then meets one that speaks wrongly.
TEST(Outage, AWorkerSaysWhenTheReasonChanges) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const std::atomic<bool> draining = false;
  const RunFinder finder("redis://127.0.0.1:1", "", "my", &draining);
  int call = 0;
  const auto answer = finder.patiently([&]() -> Result<int> {
    ++call;
    if (call <= 2) return fail(ErrorCode::kUnavailable, "Connection refused");
    if (call <= 4) return fail(ErrorCode::kUnavailable, "another certificate");
    return 7;
  });
  spdlog::set_default_logger(before);
  EXPECT_EQ(answer.value(), 7);
  EXPECT_THAT(lines.str(), HasSubstr("Connection refused; waiting"));
  EXPECT_THAT(lines.str(), HasSubstr("another certificate; waiting"));
  const std::string text = lines.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

}  // namespace
}  // namespace allot
