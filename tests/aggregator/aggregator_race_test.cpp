// Aggregator beside requests that are late: whatever was given up may still take effect.
#include "tests/aggregator/aggregator_fixture.h"
#include "tests/sim/forwarding_store.h"

namespace allot {
namespace {

// Gives one commit up without an answer and delivers it when asked to, and calls back at
// some calls.
class LateStore final : public sim::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  Status commit(uint64_t epoch, const Commit& commit) override {
    if (before_commit_) std::exchange(before_commit_, nullptr)();
    if (!lose_) return Leadership(*inner_, epoch).commit(commit);
    lose_ = false;
    late_ = {epoch, commit};
    return fail(ErrorCode::kUnavailable, "the store did not answer");
  }
  Result<std::optional<v1::AggregatorState>> readState() override {
    auto state = inner_->readState();
    if (after_read_state_) std::exchange(after_read_state_, nullptr)();
    return state;
  }

  Result<std::vector<InboxEntry>> readInbox(size_t count, uint64_t wait_ms) override {
    if (before_read_inbox_) std::exchange(before_read_inbox_, nullptr)();
    return inner_->readInbox(count, wait_ms);
  }

  void loseNextCommit() { lose_ = true; }
  void deliver() { EXPECT_TRUE(Leadership(*inner_, late_->first).commit(late_->second)); }
  void beforeNextCommit(std::function<void()> call) { before_commit_ = std::move(call); }
  void beforeNextReadInbox(std::function<void()> call) { before_read_inbox_ = std::move(call); }
  void afterNextReadState(std::function<void()> call) { after_read_state_ = std::move(call); }

 private:
  bool lose_ = false;
  std::optional<std::pair<uint64_t, Commit>> late_;  // and its epoch
  std::function<void()> before_commit_;
  std::function<void()> before_read_inbox_;
  std::function<void()> after_read_state_;
};

class AggregatorRaceTest : public AggregatorTest {
 protected:
  void SetUp() override {
    now_ = 100'000;
    use(tinyExperiment());
    announceModel();
    aggregator_ = start("a", &store_);
  }
  // Leaves it with a commit without an answer, about to load the run again.
  void beginUpdate() {
    ASSERT_TRUE(aggregator_->tick());
    push(0, 1);
    store_.loseNextCommit();
    ASSERT_EQ(codeOf(aggregator_->tick()), ErrorCode::kUnavailable);
    ASSERT_EQ(version(), 0u);
  }

  LateStore store_{openMemoryStore(server_)};
  std::unique_ptr<Aggregator> aggregator_;
};

TEST_F(AggregatorRaceTest, ItsOwnCommitThatArrivesBeforeTheSecondTryIsTakenUp) {
  beginUpdate();
  store_.beforeNextCommit([&] { store_.deliver(); });
  EXPECT_EQ(codeOf(aggregator_->tick()), ErrorCode::kUnavailable);
  ASSERT_TRUE(aggregator_->tick());
  EXPECT_EQ(version(), 1u);
  push(2, 3);
  ASSERT_TRUE(aggregator_->tick());
  EXPECT_EQ(version(), 2u);
}

TEST_F(AggregatorRaceTest, ItsOwnCommitThatArrivesWhileItLoadsIsTakenUp) {
  beginUpdate();
  store_.afterNextReadState([&] { store_.deliver(); });
  ASSERT_THAT(aggregator_->tick(), succeeds());
  EXPECT_EQ(version(), 1u);
}

// What workers make of a policy that it does not know yet is no lie.
TEST_F(AggregatorRaceTest, AfterItsOwnCommitArrivedLateItRefusesNoResultOfThatPolicy) {
  beginUpdate();
  store_.beforeNextReadInbox([&] {
    store_.deliver();
    push(2, 3);
  });
  EXPECT_EQ(codeOf(aggregator_->tick()), ErrorCode::kUnavailable);
  ASSERT_EQ(version(), 1u);
  EXPECT_TRUE(aggregator_->tick());
  EXPECT_EQ(worker_->readRefusalCounts()->at("invalid"), 0u);
  EXPECT_EQ(version(), 2u);
}

// Nobody may have a reason to send anything: if it was the last update, workers wait for the end.
TEST_F(AggregatorRaceTest, ItsOwnCommitThatArrivedLateIsSeenThoughNothingCame) {
  beginUpdate();
  store_.beforeNextReadInbox([&] { store_.deliver(); });
  EXPECT_TRUE(aggregator_->tick());
  ASSERT_EQ(version(), 1u);
  now_ += 6'000;  // the lease is renewed
  EXPECT_EQ(codeOf(aggregator_->tick()), ErrorCode::kUnavailable);
  EXPECT_TRUE(aggregator_->tick());
  EXPECT_EQ(aggregator_->snapshot().state.policy().version(), 1u);
}

// What it loads again was drawn and counted when it came.
TEST_F(AggregatorRaceTest, ResultsThatAreLoadedAgainAreNotNewToAudits) {
  beginUpdate();
  ASSERT_THAT(aggregator_->tick(), succeeds());
  ASSERT_EQ(version(), 1u);
  now_ += 6'000;
  ASSERT_THAT(aggregator_->tick(), succeeds());
  const v1::AuditStatus audits = valueOf(valueOf(worker_->readStatus())).audits();
  uint64_t counted = 0;
  for (const v1::AuditedWorker& worker : audits.workers()) counted += worker.answers();
  ASSERT_GT(counted, 0u);
  EXPECT_EQ(audits.answers(), counted);
}

// It must not take the other one's progress for a damaged store_.
TEST_F(AggregatorRaceTest, DisplacedWhileItLoadsItLeaves) {
  auto other = start("b");
  beginUpdate();
  store_.afterNextReadState([&] {
    now_ += 20'000;  // beyond the lease
    EXPECT_TRUE(other->tick());
    EXPECT_EQ(version(), 1u);
  });
  EXPECT_EQ(codeOf(aggregator_->tick()), ErrorCode::kFenced);
}

}  // namespace
}  // namespace allot
