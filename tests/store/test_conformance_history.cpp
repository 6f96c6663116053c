// The suite that every Store must pass, part three: what an update leaves behind for those that
// follow, and what is bounded whoever wrote it.
#include "store/checks.h"
#include "tests/store/conformance_suite.h"

namespace allot::test {
namespace {

std::vector<uint64_t> versionsOf(const Result<std::vector<v1::PolicySnapshot>>& policies) {
  EXPECT_TRUE(succeeded(policies));
  std::vector<uint64_t> versions;
  for (const auto& policy : *policies) versions.push_back(policy.version());
  return versions;
}

TEST_P(StoreConformance, PoliciesAreKeptUntilACommitForgetsThem) {
  const Leadership leader = lead();
  EXPECT_THAT(versionsOf(store_->readPolicies(0, 10)), ElementsAre(0));
  for (uint64_t v = 0; v < 4; ++v) {
    Commit commit = commitOf(v, {});
    if (v == 2) commit.forget_policy = 1;
    ASSERT_TRUE(succeeded(leader.commit(commit)));
  }
  EXPECT_THAT(versionsOf(store_->readPolicies(0, 10)), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(versionsOf(store_->readPolicies(1, 2)), ElementsAre(2));
  EXPECT_THAT(versionsOf(store_->readPolicies(5, 10)), IsEmpty());
  EXPECT_THAT(versionsOf(store_->readPolicies(0, 0)), IsEmpty());
  EXPECT_THAT(versionsOf(store_->readPolicies(std::numeric_limits<uint64_t>::max(), 9)), IsEmpty());
  const auto last = store_->readPolicies(4, 1).value();
  EXPECT_EQ(last.at(0).SerializeAsString(), policy(4).SerializeAsString());
  // A commit that is refused changes nothing.
  EXPECT_FALSE(leader.commit(commitOf(9, {})));
  EXPECT_THAT(versionsOf(store_->readPolicies(4, 10)), ElementsAre(4));
}

TEST_P(StoreConformance, ATicketCountsOnce) {
  constexpr uint64_t kLargest = uint64_t{1} << 53;
  const Leadership leader = lead();
  EXPECT_THAT(store_->countedTickets({0, 1}).value(), IsEmpty());
  EXPECT_THAT(store_->countedTickets({}).value(), IsEmpty());
  Commit commit = commitOf(0, {});
  commit.tickets = {511, 0, 512, 7, kLargest};
  ASSERT_TRUE(succeeded(leader.commit(commit)));
  EXPECT_THAT(backend_->open()->countedTickets({kLargest, 513, 512, 1, 7, 7, 511, 0}).value(),
              ElementsAre(0, 7, 511, 512, kLargest));
  commit = commitOf(1, {});
  for (const std::vector<uint64_t>& again :
       {std::vector<uint64_t>{7}, {1, 2, 512}, {8, kLargest}, {3, 3}, {kLargest + 1}}) {
    commit.tickets = again;
    EXPECT_FALSE(leader.commit(commit)) << again.back();
  }
  EXPECT_EQ(store_->readPolicy().value()->snapshot.version(), 1u);
  EXPECT_THAT(store_->countedTickets({1, 2, 3, 8}).value(), IsEmpty());
  commit.tickets = {1, 513, 70'000};
  ASSERT_TRUE(succeeded(leader.commit(commit)));
  EXPECT_THAT(store_->countedTickets({0, 1, 2, 513, 70'000}).value(),
              ElementsAre(0, 1, 513, 70'000));
}

TEST_P(StoreConformance, TicketsAreReissuedAndResetByTheLeaderAlone) {
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(store_->takeTickets({3, 10})));
  EXPECT_TRUE(
      failsWith(Leadership(*store_, leader.epoch() - 1).reissueTicket(2), ErrorCode::kFenced));
  EXPECT_TRUE(
      failsWith(Leadership(*store_, leader.epoch() - 1).resetTickets(0), ErrorCode::kFenced));
  EXPECT_THAT(store_->takeTickets({1, 10}).value(), ElementsAre(3));
}

TEST_P(StoreConformance, AnImportCountsItsTickets) {
  ASSERT_TRUE(succeeded(store_->beginImport()));
  std::vector<v1::IterationRecord> records;
  for (uint64_t v = 0; v < 3; ++v) {
    records.push_back(commitOf(v, {}).record);
    *records.back().add_results() = result("a" + std::to_string(v), v);
    *records.back().add_results() = result("b" + std::to_string(v), 510 + v);
  }
  ASSERT_TRUE(succeeded(store_->importHistory({records[0], records[1]})));
  ASSERT_TRUE(succeeded(store_->importHistory({records[0], records[1]})));  // repeated
  ASSERT_TRUE(succeeded(store_->importHistory({records[2]})));
  RunImage image;
  image.spec = runSpec("aa");
  image.state = state(3);
  ASSERT_TRUE(succeeded(store_->endImport(image)));
  EXPECT_THAT(store_->countedTickets({0, 1, 2, 3, 509, 510, 511, 512, 513}).value(),
              ElementsAre(0, 1, 2, 510, 511, 512));
  EXPECT_THAT(versionsOf(store_->readPolicies(0, 10)), ElementsAre(3));
}

TEST_P(StoreConformance, AnAnswerOfTheHistoryIsBoundedByBytes) {
  const Leadership leader = lead();
  for (uint64_t v = 0; v < 5; ++v) {
    Commit commit = commitOf(v, {});
    v1::EpisodeResult large = result("r" + std::to_string(v), v);
    large.set_device(std::string(v == 2 ? 9'000'000 : 3'000'000, 'x'));
    *commit.record.add_results() = large;
    ASSERT_TRUE(succeeded(leader.commit(commit)));
  }
  EXPECT_THAT(store_->readHistory(0, 100).value(), SizeIs(2));
  const auto alone = store_->readHistory(2, 100).value();
  ASSERT_THAT(alone, SizeIs(1));  // larger than an answer, and there all the same
  EXPECT_EQ(alone[0].version(), 3u);
  EXPECT_THAT(store_->readHistory(3, 1).value(), SizeIs(1));
  EXPECT_THAT(store_->readHistory(3, 100).value(), SizeIs(2));
}

TEST_P(StoreConformance, ABeatThatIsTooLargeGoesWithoutItsErrorOrNotAtAll) {
  v1::WorkerBeat beat;
  beat.set_worker("talkative");
  beat.set_last_error(std::string(kLargestBeat, 'x'));
  ASSERT_TRUE(succeeded(store_->beat({.beat = beat, .ttl_ms = 10'000})));
  beat.set_worker("sound");
  beat.set_last_error("short");
  ASSERT_TRUE(succeeded(store_->beat({.beat = beat, .ttl_ms = 10'000})));
  beat.set_worker("large");
  beat.set_device(std::string(kLargestBeat, 'x'));
  ASSERT_TRUE(succeeded(store_->beat({.beat = beat, .ttl_ms = 10'000})));
  const auto workers = store_->listWorkers().value();
  ASSERT_THAT(workers, SizeIs(2));
  EXPECT_EQ(workers[0].worker(), "sound");
  EXPECT_EQ(workers[0].last_error(), "short");
  EXPECT_EQ(workers[1].worker(), "talkative");
  EXPECT_EQ(workers[1].last_error(), "");
}

TEST_P(StoreConformance, FactsThatAreTooLargeAreRefused) {
  v1::ModelFacts facts;
  facts.set_architecture(std::string(kLargestFacts, 'x'));
  EXPECT_TRUE(failsWith(store_->agreeOnModel(facts), ErrorCode::kUnavailable));
  EXPECT_TRUE(failsWith(store_->readModel(), ErrorCode::kData));
}

}  // namespace
}  // namespace allot::test
