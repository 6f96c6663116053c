// ExperimentFile: what becomes of a run when its file is edited, on the in-memory store.
#include "aggregator/learner/experiment_file.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "store/memory/memory_store.h"
#include "tests/results.h"
#include "tests/sim/forwarding_store.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

namespace fs = std::filesystem;

class AwayStore final : public sim::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Result<std::optional<Control>> readControl() override {
    if (away) return fail(ErrorCode::kUnavailable, "the store is away");
    return inner_->readControl();
  }
  bool away = false;
};

class ExperimentFileTest : public testing::Test {
 protected:
  TempFolder temp_;
  const std::string folder_ = temp_.path();

  ExperimentFileTest() { write(8, 10); }

  std::string path() const { return folder_ + "/experiment.yaml"; }
  void write(int budget, int updates, const std::string& name = "x") const {
    std::ofstream(path()) << "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: "
                          << name << "}\nspec:\n  model: {path: none}\n"
                          << "  task: {suite: recall, tasks: [niah]}\n"
                          << "  policy: {totalBudget: " << budget
                          << "}\n  update: {maxUpdates: " << updates << "}\n";
  }
  ExperimentFile file() const {
    return ExperimentFile({.path = path(), .unix_now = [] { return uint64_t{5}; }});
  }
  // From here on something counts.
  void recordAnEvaluation() {
    v1::EvaluationResult result;
    result.mutable_unit()->set_unit_id("a");
    const uint64_t epoch = store_.acquireLease("x", 1000)->epoch;
    ASSERT_TRUE(store_.planUnits(epoch, {result.unit()}));
    ASSERT_TRUE(store_.pushEvaluation(result));
    ASSERT_TRUE(store_.acceptEvaluations(epoch, *store_.readRecorded(1)));
  }
  uint64_t updates() { return control().experiment.spec().update().max_updates(); }
  Control control() { return **store_.readControl(); }

  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>([] { return 1; });
  AwayStore store_{openMemoryStore(server_)};
};

TEST_F(ExperimentFileTest, ALiveEditTakesEffectOnce) {
  ExperimentFile followed = file();
  ASSERT_TRUE(followed.begin(&store_, true));
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_EQ(control().revision, 1u);
  write(8, 20);
  ASSERT_TRUE(followed.follow(&store_));
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_EQ(updates(), 20u);
  EXPECT_EQ(control().revision, 2u);
  EXPECT_EQ(followed.refused(), "");
}

TEST_F(ExperimentFileTest, FilesWithoutEndAndDeepOriginsAreRefused) {
  fs::resize_file(path(), uint64_t{1} << 40);  // zeros, of which the disk holds none
  EXPECT_THAT(file().begin(&store_, false),
              isError(path() + ": has more than the 1048576 bytes that are read"));
  write(8, 10);
  const std::string origin = temp_.write(
      "origin.json", "{\"deep\": " + std::string(400'000, '[') + std::string(400'000, ']') + "}");
  for (const char* name : {origin.c_str(), "/dev/zero"}) {
    ExperimentFile forked({.path = path(), .origin = name, .unix_now = [] { return uint64_t{5}; }});
    EXPECT_THAT(forked.begin(&store_, false), isError(HasSubstr("is not the origin of a fork")));
  }
}

// All of an edit or nothing of it.
TEST_F(ExperimentFileTest, AnEditThatTheRunCannotTakeIsRefusedWholeUntilItIsPutRight) {
  ExperimentFile followed = file();
  ASSERT_TRUE(followed.begin(&store_, true));
  recordAnEvaluation();
  write(16, 20);
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_THAT(followed.refused(),
              AllOf(HasSubstr("spec.policy.totalBudget cannot change from 8 to 16"),
                    HasSubstr("allot fork")));
  EXPECT_EQ(updates(), 10u);
  write(8, 20, "y");
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_THAT(followed.refused(), HasSubstr("metadata.name"));
  for (const char* text : {"", "apiVersion: allot.dev/v1al", "\xff\xfe", "a: [", "spec: 3"}) {
    std::ofstream(path()) << text;
    ASSERT_TRUE(followed.follow(&store_));
    EXPECT_THAT(followed.refused(), HasSubstr(path())) << text;
  }
  fs::remove(path());
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_THAT(followed.refused(), HasSubstr("cannot be read"));
  EXPECT_EQ(control().revision, 1u);
  write(8, 20);
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_EQ(followed.refused(), "");
  EXPECT_EQ(updates(), 20u);
}

// `allot set` and the file each have their word; a refused file does not undo the former.
TEST_F(ExperimentFileTest, WhatWasSetByCommandStaysThroughAnEdit) {
  ExperimentFile followed = file();
  ASSERT_TRUE(followed.begin(&store_, true));
  recordAnEvaluation();
  Control next = control();
  next.experiment.mutable_spec()->mutable_update()->set_learning_rate(0.5);
  ASSERT_TRUE(*store_.changeControl(next));
  write(16, 10);
  ASSERT_TRUE(followed.follow(&store_));
  write(8, 20);
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_EQ(updates(), 20u);
  EXPECT_EQ(control().experiment.spec().update().learning_rate(), 0.5);
}

// Until something counts: a typo in the first file is mended in the file.
TEST_F(ExperimentFileTest, BeforeTheFirstResultAnyEditButTheNameIsTaken) {
  ExperimentFile followed = file();
  const auto begun = valueOf(followed.begin(&store_, true));
  Control next = control();
  next.experiment.mutable_spec()->mutable_update()->set_learning_rate(0.5);  // by command
  ASSERT_TRUE(*store_.changeControl(next));
  write(16, 20);
  const RunSpec replaced = valueOf(valueOf(followed.follow(&store_)));
  EXPECT_EQ(replaced.experiment.spec().policy().total_budget(), 16u);
  EXPECT_EQ(replaced.started_unix_ms, begun.started_unix_ms);
  EXPECT_EQ((*store_.readSpec())->sha256, replaced.sha256);
  EXPECT_EQ(followed.refused(), "");
  EXPECT_EQ(updates(), 20u);
  EXPECT_EQ(control().experiment.spec().update().learning_rate(), 0.5);
  EXPECT_EQ(control().file.spec().policy().total_budget(), 16u);

  // A live edit leaves what is there alone, the name stays.
  write(16, 30);
  EXPECT_FALSE(valueOf(followed.follow(&store_)));
  EXPECT_EQ(updates(), 30u);
  write(16, 30, "y");
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_THAT(followed.refused(), HasSubstr("metadata.name cannot change"));
  EXPECT_EQ(control().experiment.name(), "x");

  // A new process does the same with a file that was edited while none was there.
  write(24, 30);
  EXPECT_EQ(valueOf(file().begin(&store_, false)).experiment.spec().policy().total_budget(), 24u);
  recordAnEvaluation();
  write(8, 30);
  EXPECT_THAT(file().begin(&store_, false),
              isError(HasSubstr("it has 1 evaluation of the other value")));
}

TEST_F(ExperimentFileTest, AnEditWaitsWhileTheStoreIsAway) {
  ExperimentFile followed = file();
  ASSERT_TRUE(followed.begin(&store_, true));
  write(8, 20);
  store_.away = true;
  EXPECT_EQ(codeOf(followed.follow(&store_)), ErrorCode::kUnavailable);
  store_.away = false;
  ASSERT_TRUE(followed.follow(&store_));
  EXPECT_EQ(updates(), 20u);
}

TEST_F(ExperimentFileTest, AtTheStartTheStoredRunGoesOnOnlyIfTheProcessIsToStay) {
  ASSERT_TRUE(file().begin(&store_, false));
  recordAnEvaluation();
  write(16, 10);
  EXPECT_EQ(codeOf(file().begin(&store_, false)), ErrorCode::kUsage);
  ExperimentFile staying = file();
  EXPECT_EQ(valueOf(staying.begin(&store_, true)).experiment.spec().policy().total_budget(), 8u);
  EXPECT_THAT(staying.refused(), HasSubstr("spec.policy.totalBudget"));
  // With nothing stored there is nothing to go on with.
  AwayStore empty(openMemoryStore(std::make_shared<MemoryServer>([] { return 1; })));
  std::ofstream(path()) << "broken";
  EXPECT_FALSE(file().begin(&empty, true));
}

}  // namespace
}  // namespace allot
