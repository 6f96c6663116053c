// Report and export of a run, written beside the learning.
#include "aggregator/report/run_files.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "aggregator/page/run_view.h"
#include "tests/aggregator/aggregator_fixture.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

class RunFilesTest : public AggregatorTest {
 protected:
  RunFiles::Open open() {
    return [server = server_] { return Result<std::unique_ptr<Store>>(openMemoryStore(server)); };
  }
  RunSnapshot learned() {
    const auto aggregator = lead();
    for (uint64_t ticket = 0; ticket < 12; ++ticket) push(ticket);
    finish(aggregator.get());
    return aggregator->snapshot();
  }
};

TEST_F(RunFilesTest, AreWrittenWhileOtherThingsGoOn) {
  const TempFolder folder;
  const RunSnapshot snapshot = learned();
  RunFiles files(folder.path(), "01RUN", open());
  EXPECT_FALSE(files.outcome());
  ASSERT_TRUE(files.write(snapshot, true));
  EXPECT_TRUE(files.isBusy());
  EXPECT_FALSE(files.write(snapshot, true));  // one at a time
  EXPECT_THAT(files.wait(), succeeds());
  EXPECT_FALSE(files.isBusy());
  EXPECT_FALSE(files.outcome());
  for (const char* name : {"report.html", "summary.json", "export.json", "history.jsonl"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/" + name)) << name;
  }
}

TEST_F(RunFilesTest, WhatCannotBeWrittenIsToldOnceAndMayBeTriedAgain) {
  const TempFolder folder;
  const std::string dir = folder.write("file", "in the way");
  const RunSnapshot snapshot = learned();
  RunFiles files(dir, "01RUN", open());
  ASSERT_TRUE(files.write(snapshot, true));
  std::optional<Status> outcome;
  for (int i = 0; i < 2000 && !outcome; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    outcome = files.outcome();
  }
  ASSERT_TRUE(outcome);
  ASSERT_FALSE(*outcome);
  EXPECT_EQ(outcome->error().code, ErrorCode::kIo);
  EXPECT_FALSE(files.outcome());
  std::filesystem::remove(dir);
  ASSERT_TRUE(files.write(snapshot, true));
  EXPECT_TRUE(files.wait());
}

TEST_F(RunFilesTest, OfTheRunsEndAreTriedAgainUntilTheyAreThere) {
  const TempFolder folder;
  const std::string dir = folder.write("file", "in the way");
  const RunSnapshot snapshot = learned();
  RunFiles files(dir, "01RUN", open());
  EndFiles end(&files);
  uint64_t now = 0;
  const auto look = [&] { return end.look(now, [&] { return snapshot; }); };
  const auto outcome = [&] {
    std::optional<Status> found;
    for (int i = 0; i < 2000 && !found; ++i) {
      found = look();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return found;
  };
  EXPECT_EQ(codeOf(valueOf(outcome())), ErrorCode::kIo);
  EXPECT_FALSE(end.written());
  std::filesystem::remove(dir);
  now = EndFiles::kAgainMs - 1;
  EXPECT_FALSE(look());
  EXPECT_FALSE(files.isBusy());
  now = EndFiles::kAgainMs;
  auto second = outcome();
  ASSERT_TRUE(second && *second);
  EXPECT_TRUE(end.written());
  EXPECT_TRUE(std::filesystem::exists(dir + "/export.json"));
  EXPECT_FALSE(look());  // once, as long as it stays there
  EXPECT_FALSE(files.isBusy());
  end.leave();
  EXPECT_FALSE(end.written());
  ASSERT_TRUE(outcome());
  EXPECT_TRUE(end.written());
}

TEST_F(RunFilesTest, AStartAheadOfOurClockIsNoTimeAtAll) {
  RunSnapshot snapshot;
  snapshot.run.started_unix_ms = 5'000;
  EXPECT_EQ(runView(snapshot, 4'000, "01RUN").facts["wall_seconds"], 0.0);
  EXPECT_EQ(runView(snapshot, 6'500, "01RUN").facts["wall_seconds"], 1.5);
}

}  // namespace
}  // namespace allot
