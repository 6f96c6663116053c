// WorkerLoop with an engine that costs nothing, on the in-memory store.
#include "worker/worker_loop.h"

#include <gmock/gmock.h>

#include "core/policy_gradient.h"
#include "core/spec.h"
#include "store/memory_store.h"

namespace allot {
namespace {

class TestEngine final : public EpisodeEngine {
 public:
  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& sha256,
                                                 const std::vector<uint64_t>& tickets) override {
    std::vector<v1::EpisodeResult> results;
    for (uint64_t ticket : tickets) {
      v1::EpisodeResult& result = results.emplace_back();
      result.set_ticket(ticket);
      result.set_policy_version(policy.version());
      result.set_policy_sha256(sha256);
    }
    return results;
  }
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    return result;
  }
  std::vector<uint32_t> warmChunks() const override { return {}; }
};

class WorkerLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto parsed = parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: test}
spec:
  model: {path: none}
  task: {suite: recall, tasks: [niah]}
  policy: {totalBudget: 8}
  rollout: {episodesPerPull: 3}
  update: {episodesPerUpdate: 2, maxUpdates: 4}
)",
                                        "test");
    ASSERT_TRUE(parsed) << parsed.error().message;
    run_ = {*parsed, specDigest(*parsed), false, 1, {}};
    ASSERT_TRUE(store_->createRun(run_));
    epoch_ = store_->acquireLease("a", 60'000)->epoch;
    const v1::AggregatorState state = initialState(*parsed, 4);
    ASSERT_TRUE(store_->publishInitial(epoch_, state.policy(), state));
  }

  // With room for four results: twice episodesPerUpdate.
  std::unique_ptr<WorkerLoop> worker() {
    return std::make_unique<WorkerLoop>(store_.get(), &engine_, run_,
                                        WorkerOptions{.name = "w",
                                                      .build = "test",
                                                      .inbox_cap = 1,
                                                      .now = [this] { return now_ += 10; },
                                                      .unix_now = [this] { return now_; }},
                                        &draining_);
  }
  // Two rounds of three episodes: four fit, two are held.
  std::unique_ptr<WorkerLoop> workerBeforeAFullInbox() {
    auto loop = worker();
    EXPECT_TRUE(loop->step());
    EXPECT_TRUE(loop->step());
    EXPECT_EQ(*store_->inboxSize(), 4u);
    EXPECT_EQ(loop->heldResults(), 2u);
    return loop;
  }
  bool ends(WorkerLoop* loop) {
    const auto rest = loop->step();
    EXPECT_TRUE(rest);
    return rest && !*rest;
  }
  void change(const std::string& desired, uint32_t episodes_per_update) {
    Control control = **store_->readControl();
    control.desired = desired;
    control.experiment.mutable_spec()->mutable_update()->set_episodes_per_update(
        episodes_per_update);
    ASSERT_TRUE(*store_->changeControl(control));
  }

  uint64_t now_ = 1000;
  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>([this] { return now_; });
  std::unique_ptr<MemoryStore> store_ = openMemoryStore(server_);
  TestEngine engine_;
  RunSpec run_;
  uint64_t epoch_ = 0;
  std::atomic<bool> draining_{false};
};

TEST_F(WorkerLoopTest, AFullInboxMakesItHoldItsResultsAndTakeNoTickets) {
  const auto loop = workerBeforeAFullInbox();
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->nextTicket(), 6u);
  const auto entries = store_->readInbox(1, 0);
  ASSERT_TRUE(store_->reject(epoch_, entries->front(), "invalid", "makes room"));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(loop->heldResults(), 1u);
}

// What nobody will consume must not keep a worker for ever.
TEST_F(WorkerLoopTest, ItEndsWithTheRunThoughTheInboxIsFull) {
  const auto loop = workerBeforeAFullInbox();
  change("finished", 2);
  EXPECT_TRUE(ends(loop.get()));
}

// After the last update the inbox is not emptied, but the run ends only once all is evaluated.
TEST_F(WorkerLoopTest, ItEvaluatesThoughTheInboxIsFull) {
  const auto loop = workerBeforeAFullInbox();
  v1::EvaluationUnit unit;
  unit.set_unit_id("v000004/c0000/dense/dense/0");
  ASSERT_TRUE(store_->planUnits(epoch_, {unit}));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_EQ(*store_->openUnits(), 0u);
  EXPECT_EQ(loop->heldResults(), 2u);
}

// Else an update that needs more than fits would wait for ever.
TEST_F(WorkerLoopTest, ItHearsThatThereIsMoreRoom) {
  const auto loop = workerBeforeAFullInbox();
  change("running", 4);
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_FALSE(ends(loop.get()));
  EXPECT_GE(*store_->inboxSize(), 6u);
}

TEST_F(WorkerLoopTest, DrainingItPushesWhatItHoldsAndLeaves) {
  const auto loop = workerBeforeAFullInbox();
  draining_ = true;
  EXPECT_FALSE(ends(loop.get()));
  const auto entries = store_->readInbox(10, 0);
  for (const InboxEntry& entry : *entries) {
    ASSERT_TRUE(store_->reject(epoch_, entry, "invalid", "makes room"));
  }
  EXPECT_TRUE(ends(loop.get()));
  EXPECT_EQ(*store_->inboxSize(), 2u);
  EXPECT_EQ(*store_->nextTicket(), 6u);
}

}  // namespace
}  // namespace allot
