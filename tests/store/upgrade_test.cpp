// Runs and exports of earlier builds (tests/golden/exports): this one reads, changes and goes on
// with each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/experiment_file.h"
#include "cli/control.h"
#include "cli/leaderboard.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/random_stream.h"
#include "core/spec/spec.h"
#include "store/archive/archive.h"
#include "store/memory/memory_store.h"
#include "tests/store/redis_server.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kExports = ALLOT_SOURCE_DIR "/tests/golden/exports";
constexpr uint64_t kUpdates = 3;  // that each of them has

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kExports)) {
    if (entry.is_directory()) all.push_back(entry.path().filename().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

class Upgrade : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kExports + "/" + GetParam(); }
  json exported() const { return json::parse(readFile(folder() + "/export.json")); }
  std::string runId() const { return exported()["run_id"]; }

  static Result<VerifySummary> verify(const std::string& folder) {
    ALLOT_ASSIGN(const auto reader, ArchiveReader::open(folder));
    return verifyRun(reader.get());
  }
  // The run in a store of its own.
  void importRun() {
    const auto reader = ArchiveReader::open(folder());
    ASSERT_TRUE(reader) << reader.error().message;
    const auto imported = allot::importRun(reader->get(), store_.get());
    ASSERT_TRUE(imported) << imported.error().message;
  }
  // The unchanged file of then.
  static ExperimentFile file() {
    return ExperimentFile({.path = kExports + "/experiment.yaml",
                           .synchronous = true,
                           .unix_now = [] { return uint64_t{5}; }});
  }
  // What a run can do, and what it cannot.
  static void changeAndGoOn(Store* store) {
    ExperimentFile followed = file();
    const auto run = followed.begin(store, false);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(followed.refused(), "");
    const uint64_t revision = (*store->readControl())->revision;

    const auto set = setInRun(store, {"spec.update.learningRate=0.02"});
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_EQ(set->size(), 1u);
    const auto refused = setInRun(store, {"spec.policy.totalBudget=16"});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("cannot change from 8 to 16"));
    const auto extended = extendRun(store, 2);
    ASSERT_TRUE(extended) << extended.error().message;
    EXPECT_EQ((*store->readControl())->revision, revision + 2);
    EXPECT_EQ((*store->readControl())->desired, Desired::kRunning);

    uint64_t now = 1'000'000;
    Aggregator aggregator(store, *run,
                          {.holder = "a",
                           .lease_ms = 60'000,
                           .wait_ms = 0,
                           .now = [&] { return now += 10; },
                           .unix_now = [&] { return now; }});
    for (int i = 0; i < 3; ++i) {
      const auto more = aggregator.tick();
      ASSERT_TRUE(more) << more.error().message;
      EXPECT_TRUE(*more);
    }
    EXPECT_EQ(aggregator.snapshot().phase, Phase::kRunning);
    EXPECT_EQ(aggregator.snapshot().state.policy().version(), kUpdates);
    EXPECT_FALSE(aggregator.snapshot().cells.empty());
    // There is work to do again.
    EXPECT_EQ(store->takeTickets({2, (kUpdates + 1) * 2})->size(), 2u);
    EXPECT_TRUE(store->releaseLease("a"));
  }

  TempFolder temp_;
  std::unique_ptr<Store> store_ =
      openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
};

TEST_P(Upgrade, ItsExportVerifies) {
  const auto verified = verify(folder());
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->updates, kUpdates);
  EXPECT_EQ(verified->evaluations, 2u);
}

TEST_P(Upgrade, ItsExportIsImportedAndExportedAgain) {
  importRun();
  StoreSource source(store_.get(), runId());
  const auto again = exportRun(&source, temp_.path() + "/again");
  ASSERT_TRUE(again) << again.error().message;
  const auto verified = verify(temp_.path() + "/again");
  ASSERT_TRUE(verified) << verified.error().message;
  const json written = json::parse(readFile(temp_.path() + "/again/export.json"));
  EXPECT_EQ(written["experiment_sha256"], exported()["experiment_sha256"]);
  EXPECT_EQ(written["policy_sha256"], exported()["policy_sha256"]);
  EXPECT_GT(written["schema"], 0u);
  EXPECT_EQ(readFile(temp_.path() + "/again/history.jsonl"), readFile(folder() + "/history.jsonl"));
}

// Its schedules are drawn again from its seed as it drew them, though today's builds draw others.
TEST_P(Upgrade, ItsRandomNumbersAreThoseOfThen) {
  const auto reader = ArchiveReader::open(folder());
  ASSERT_TRUE(reader) << reader.error().message;
  const auto head = (*reader)->readHead();
  ASSERT_TRUE(head) << head.error().message;
  const v1::Experiment& experiment = head->image.spec.experiment;
  const RunStreams then = runStreams(experiment.spec());
  EXPECT_EQ(then.layout, Streams::kOverlapping);
  v1::PolicySnapshot policy =
      initialState(experiment, head->image.model->layers(), nullptr).policy();
  int schedules = 0, others = 0;
  const auto records = (*reader)->nextRecords();
  ASSERT_TRUE(records && records->size() == kUpdates);
  for (const v1::IterationRecord& record : *records) {
    const auto shares = softmax({policy.logits().begin(), policy.logits().end()});
    for (const v1::EpisodeResult& result : record.results()) {
      const SampleSchedule drawn(result.schedule().begin(), result.schedule().end());
      EXPECT_EQ(drawn, drawSchedule(shares, 8, 0, then, result.ticket())) << result.ticket();
      others += drawn != drawSchedule(shares, 8, 0, {then.key}, result.ticket()) ? 1 : 0;
      ++schedules;
    }
    policy = record.policy();
  }
  EXPECT_GT(schedules, 3);
  EXPECT_GT(others, schedules / 2);
}

TEST_P(Upgrade, ItsExportIsTopped) {
  importRun();
  const auto spec = store_->readSpec();
  ASSERT_TRUE(spec && *spec);
  EvaluationTable table((*spec)->experiment);
  const auto evaluations = store_->readEvaluations("", 100);
  ASSERT_TRUE(evaluations);
  for (const Evaluation& evaluation : *evaluations) table.add(evaluation.result);
  for (const EvaluationCell& cell : table.cells()) {
    EXPECT_EQ(cell.repeats, 1u);
    EXPECT_TRUE(cell.complete);
  }
  const std::string text = leaderboardText(makeLeaderboard(table.cells(), 0), false);
  EXPECT_THAT(text, HasSubstr("learned"));
  EXPECT_THAT(text, HasSubstr("0.250"));
}

TEST_P(Upgrade, ItsExportGoesOn) {
  importRun();
  changeAndGoOn(store_.get());
}

// The Redis of a run folder that the build of then left behind.
TEST_P(Upgrade, ItsStoreGoesOn) {
  const test::RedisServer server({}, [this](const std::string& data) {
    fs::copy(folder() + "/appendonlydir", data + "/appendonlydir", fs::copy_options::recursive);
  });
  const auto store = *openRedisStore(server.url(), runId());
  const auto spec = store->readSpec();
  ASSERT_TRUE(spec && *spec) << "it is not there";
  StoreSource source(store.get(), runId());
  const auto verified = verifyRun(&source);
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->updates, kUpdates);
  changeAndGoOn(store.get());
}

INSTANTIATE_TEST_SUITE_P(Builds, Upgrade, testing::ValuesIn(names()),
                         [](const auto& info) { return "of" + info.param; });

TEST(UpgradeBack, AnExportOfANewerBuildIsRefusedWithTheBuildToUse) {
  const TempFolder temp;
  fs::copy(kExports + "/" + names().front(), temp.path() + "/x");
  json exported = json::parse(readFile(temp.path() + "/x/export.json"));
  exported["schema"] = kSpecSchema + 1;
  exported["build"] = "allot 9.0 (GNU 20)";
  exported["experiment"]["spec"]["model"]["quantised"] = "yes";  // a key that nobody knows here
  std::ofstream(temp.path() + "/x/export.json") << exported.dump();
  const auto reader = ArchiveReader::open(temp.path() + "/x");
  ASSERT_TRUE(reader);
  const auto refused = verifyRun(reader->get());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("newer build, allot 9.0 (GNU 20)"));
  EXPECT_THAT(refused.error().message, HasSubstr("use that one"));
}

}  // namespace
}  // namespace allot
