// Evaluation units, and the news that wakes who waits for them.
#include "core/evaluation/answers.h"
#include "tests/store/conformance_suite.h"

namespace allot::test {
namespace {

TEST_P(StoreConformance, UnitsAreClaimedByGroupAndWarmChunksFirst) {
  const Leadership leader = lead();
  EXPECT_THAT(claim({}), IsEmpty());
  // Version 10 after 9, chunk 10 after 2: numbers, not text, decide.
  ASSERT_TRUE(succeeded(leader.planUnits(
      {unit(10, 1, "dense"), unit(9, 2, "santa"), unit(9, 2, "dense"), unit(9, 10, "dense"),
       unit(10, 2, "dense"), unit(10, 10, "dense"), unit(11, 5, "dense")})));
  EXPECT_EQ(store_->openUnits().value(), 7u);
  EXPECT_THAT(claim({5}), ElementsAre("v11/c5/dense"));                 // warm before old
  EXPECT_THAT(claim({10, 1}), ElementsAre("v9/c10/dense"));             // warm, the older version
  EXPECT_THAT(claim({1}), ElementsAre("v10/c1/dense"));                 // warm before old
  EXPECT_THAT(claim({77}), ElementsAre("v9/c2/dense", "v9/c2/santa"));  // cold: the oldest, whole
  EXPECT_THAT(claim({}), ElementsAre("v10/c2/dense"));
  EXPECT_THAT(claim({}), ElementsAre("v10/c10/dense"));
  EXPECT_THAT(claim({1, 2, 10}), IsEmpty());
  EXPECT_EQ(store_->openUnits().value(), 7u);  // claimed, not recorded
}

TEST_P(StoreConformance, UnitsAreRecordedOnceAndClaimsExpire) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, b})));
  EXPECT_THAT(claimAll(300), ElementsAre(a.unit_id(), b.unit_id()));
  ASSERT_TRUE(succeeded(leader.planUnits({a, b})));  // planned again: the claim stands
  EXPECT_THAT(claim({}), IsEmpty());
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w1")).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  EXPECT_EQ(store_->openUnits().value(), 2u);  // it is not accepted yet
  ASSERT_TRUE(succeeded(store_->releaseUnits("w", {a, b, unit(7, 7, "never planned")})));
  EXPECT_THAT(claim({}, 300), ElementsAre(b.unit_id()));  // given back; a is done
  EXPECT_THAT(claim({}), IsEmpty());
  backend_->advance(320);
  EXPECT_THAT(claim({}), ElementsAre(b.unit_id()));  // w1 died
  ASSERT_TRUE(succeeded(leader.planUnits({a, b})));  // a was recorded: not planned again
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(b, "w2")).value(), PushOutcome::kAccepted);
  EXPECT_THAT(store_->readEvaluations("", 10).value(), IsEmpty());
  ASSERT_THAT(store_->readRecorded(1).value(), SizeIs(1));
  const auto recorded = store_->readRecorded(10).value();
  ASSERT_THAT(recorded, SizeIs(2));
  ASSERT_TRUE(succeeded(leader.acceptEvaluations({recorded[0]})));
  EXPECT_EQ(store_->openUnits().value(), 1u);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(recorded)));  // one of them again
  EXPECT_THAT(store_->readRecorded(10).value(), IsEmpty());
  EXPECT_EQ(store_->openUnits().value(), 0u);
  ASSERT_TRUE(succeeded(leader.planUnits({a, b})));
  EXPECT_EQ(store_->openUnits().value(), 0u);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  EXPECT_TRUE(failsWith(leader.planUnits({v1::EvaluationUnit()}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->pushEvaluation(v1::EvaluationResult()), ErrorCode::kUsage));

  const auto first = store_->readEvaluations("", 1).value();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].result.worker(), "w1");
  const auto second = store_->readEvaluations(first[0].entry_id, 10).value();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].result.unit().unit_id(), b.unit_id());
  EXPECT_THAT(store_->readEvaluations(second[0].entry_id, 10).value(), IsEmpty());
  EXPECT_TRUE(failsWith(store_->readEvaluations("(0-0", 10), ErrorCode::kUsage));
}

TEST_P(StoreConformance, OnlyPlannedUnitsAreRecordedAndRejectedOnesMayBePlannedAgain) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 0, "c");
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kDuplicate);
  EXPECT_THAT(store_->readRecorded(10).value(), IsEmpty());
  ASSERT_TRUE(succeeded(leader.planUnits({b, a})));  // it was not marked as done either
  const auto open = store_->listUnits().value();
  ASSERT_THAT(open, SizeIs(2));
  EXPECT_EQ(open[0].SerializeAsString(), a.SerializeAsString());
  EXPECT_EQ(open[1].unit_id(), b.unit_id());
  auto large = evaluationOf(b, std::string(kLargestResult, 'x'));
  EXPECT_TRUE(failsWith(store_->pushEvaluation(large), ErrorCode::kUsage));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "liar")).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(b, "w")).value(), PushOutcome::kAccepted);

  const auto recorded = store_->readRecorded(10).value();
  ASSERT_THAT(recorded, SizeIs(2));
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(recorded[0], RefusalKind::kInvalid, "a lie", nullptr, 0)));
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(recorded[0], RefusalKind::kInvalid, "a lie", nullptr, 0)));
  EXPECT_EQ(store_->readRefusalCounts()->at("invalid"), 1u);
  EXPECT_THAT(refusedReasons(), ElementsAre("invalid: a lie"));
  EXPECT_EQ(store_->readRefusals(1)->at(0).result_id, a.unit_id());
  EXPECT_TRUE(failsWith(leader.rejectEvaluation({"x", {}}, RefusalKind::kInvalid, "no", nullptr, 0),
                        ErrorCode::kUsage));

  EXPECT_EQ(store_->openUnits().value(), 1u);  // not planned until somebody does it
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c})));
  EXPECT_THAT(claimAll(), ElementsAre(a.unit_id(), c.unit_id()));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
  // The late repetition of the rejection meets another entry and leaves the new record alone.
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(recorded[0], RefusalKind::kInvalid, "a lie", nullptr, 0)));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  const auto again = store_->readRecorded(10).value();
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(again[0].result.unit().unit_id(), b.unit_id());
  EXPECT_EQ(again[1].result.worker(), "w");

  // Refused and opened again in one step; another unit's id opens nothing.
  ASSERT_TRUE(succeeded(leader.rejectEvaluation(again[1], RefusalKind::kInvalid, "a lie", &a, 0)));
  ASSERT_TRUE(succeeded(leader.rejectEvaluation(again[0], RefusalKind::kInvalid, "a lie", &c, 0)));
  EXPECT_THAT(claim({}), ElementsAre(a.unit_id()));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w3")).value(), PushOutcome::kAccepted);
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(b, "w3")).value(), PushOutcome::kDuplicate);

  // An accepted one, too.
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store_->readRecorded(10).value())));
  EXPECT_EQ(store_->openUnits().value(), 1u);  // c
  auto accepted = store_->readEvaluations("", 10).value();
  ASSERT_THAT(accepted, SizeIs(1));
  EXPECT_EQ(accepted[0].result.worker(), "w3");
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(accepted[0], RefusalKind::kInvalid, "a lie", &a, 0)));
  EXPECT_THAT(store_->readEvaluations("", 10).value(), IsEmpty());
  EXPECT_THAT(claim({}), ElementsAre(a.unit_id()));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w4")).value(), PushOutcome::kAccepted);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store_->readRecorded(10).value())));
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(accepted[0], RefusalKind::kInvalid, "a lie", &a, 0)));
  accepted = store_->readEvaluations("", 10).value();
  ASSERT_THAT(accepted, SizeIs(1));
  EXPECT_EQ(accepted[0].result.worker(), "w4");
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(accepted[0], RefusalKind::kInvalid, "no", nullptr, 0)));
  EXPECT_THAT(store_->listUnits().value(), SizeIs(1));  // c alone
}

TEST_P(StoreConformance, AnswersLieBesideWhatEverybodyReads) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 0, "c");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c})));
  const auto with = answered(evaluationOf(a, "w"), "in 3 years 21\x1b\n");
  auto empty = evaluationOf(b, "w");
  empty.mutable_answers();
  for (const auto& result : {with, empty, evaluationOf(c, "older")}) {
    EXPECT_EQ(store_->pushEvaluation(result).value(), PushOutcome::kAccepted);
  }
  const auto recorded = store_->readRecorded(10).value();
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(recorded)));
  const auto without = store_->readEvaluations("", 10).value();
  const auto full = store_->readAnswers("", 10).value();
  ASSERT_THAT(without, SizeIs(3));
  ASSERT_THAT(full, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(full[i].entry_id, without[i].entry_id);
    EXPECT_FALSE(without[i].result.has_answers());
    EXPECT_EQ(full[i].result.has_answers(), i == 0);
    const uint64_t bytes = i == 0 ? with.answers().ByteSizeLong() : 0;
    EXPECT_EQ(full[i].answers_bytes, bytes);
    EXPECT_EQ(without[i].answers_bytes, bytes);
    EXPECT_EQ(recorded[i].answers_bytes, bytes);
    EXPECT_FALSE(recorded[i].result.has_answers());
  }
  EXPECT_EQ(full[0].result.SerializeAsString(), with.SerializeAsString());
  EXPECT_EQ(without[0].result.scores_size(), 1);
  EXPECT_THAT(store_->readAnswers(full[0].entry_id, 1).value(), SizeIs(1));
  EXPECT_TRUE(failsWith(store_->readAnswers("(0-0", 10), ErrorCode::kUsage));

  // They go with the evaluation that they belong to.
  ASSERT_TRUE(succeeded(leader.rejectEvaluation(full[0], RefusalKind::kInvalid, "no", &a, 0)));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kAccepted);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store_->readRecorded(10).value())));
  EXPECT_FALSE(store_->readAnswers(full[2].entry_id, 10).value().at(0).result.has_answers());
}

TEST_P(StoreConformance, AnswersHaveABoundOfTheirOwn) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  // Text, and some bytes to say how long it is.
  const auto large = answered(evaluationOf(a, "w"), std::string(kLargestAnswers - 3, 'x'));
  EXPECT_TRUE(failsWith(store_->pushEvaluation(large), ErrorCode::kUsage));
  EXPECT_EQ(store_->openUnits().value(), 1u);  // nothing was recorded
  // What a result may have, and what its answers may have, do not count against each other.
  const auto most = answered(evaluationOf(a, std::string(kLargestResult - 1000, 'w')),
                             std::string(kLargestAnswers - 20, 'x'));
  EXPECT_EQ(store_->pushEvaluation(most).value(), PushOutcome::kAccepted);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store_->readRecorded(10).value())));
  EXPECT_EQ(store_->readAnswers("", 10).value().at(0).result.SerializeAsString(),
            most.SerializeAsString());
}

TEST_P(StoreConformance, WithdrawnUnitsAreForgottenAndMayBePlannedAgain) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 1, "c");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c})));
  EXPECT_THAT(claim({}), ElementsAre(a.unit_id(), b.unit_id()));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
  ASSERT_TRUE(succeeded(leader.withdrawUnits()));
  ASSERT_TRUE(succeeded(leader.withdrawUnits()));
  EXPECT_EQ(store_->openUnits().value(), 0u);
  EXPECT_THAT(store_->listUnits().value(), IsEmpty());
  EXPECT_THAT(claim({}), IsEmpty());
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(b, "w")).value(), PushOutcome::kDuplicate);
  EXPECT_THAT(store_->readRecorded(10).value(), SizeIs(1));
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c})));  // a is recorded
  EXPECT_THAT(claim({}), ElementsAre(b.unit_id()));     // whoever had claimed it before
  EXPECT_EQ(store_->openUnits().value(), 3u);
}

TEST_P(StoreConformance, ALargeGridIsClaimedInShares) {
  const Leadership leader = lead();
  std::vector<v1::EvaluationUnit> units;
  for (uint32_t i = 0; i < 2400; ++i) units.push_back(unit(3, i % 2, std::to_string(i)));
  ASSERT_TRUE(succeeded(leader.planUnits(units)));
  EXPECT_EQ(store_->openUnits().value(), 2400u);
  EXPECT_THAT(claim({1}), SizeIs(1200));  // half for one alone
  for (const char* worker : {"a", "b", "c", "d", "e"})
    ASSERT_TRUE(succeeded(beat(worker, 3'600'000)));
  EXPECT_THAT(claim({}), SizeIs(120));  // a tenth of what is free, for one of five
  EXPECT_THAT(store_->claimUnits({.holder = "w", .count = 7, .lease_ms = 9'999}).value(),
              SizeIs(7));
  EXPECT_THAT(claimAll(), SizeIs(2400 - 1200 - 120 - 7));
  ASSERT_TRUE(succeeded(store_->releaseUnits("w", units)));
  EXPECT_THAT(claimAll(), SizeIs(2400));
  EXPECT_TRUE(failsWith(store_->claimUnits({.holder = "w", .count = 0}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store_->claimUnits({.holder = "", .count = 1}), ErrorCode::kUsage));
}

TEST_P(StoreConformance, ClaimsSpreadOverTheChunksOfTheOldestVersion) {
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.planUnits({unit(2, 0, "a"), unit(1, 0, "a"), unit(1, 0, "b"),
                                          unit(1, 1, "a"), unit(1, 1, "b"), unit(1, 2, "a")})));
  const auto one = [&] { return store_->claimUnits({.holder = "w", .lease_ms = 1'000'000}); };
  std::vector<std::string> order;
  for (int i = 0; i < 6; ++i) order.push_back(one()->at(0).unit_id());
  EXPECT_THAT(order, ElementsAre("v1/c0/a", "v1/c1/a", "v1/c2/a", "v1/c0/b", "v1/c1/b", "v2/c0/a"));
}

TEST_P(StoreConformance, WhatIsFreeIsClaimedBeforeWhatHasEnded) {
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.planUnits({unit(1, 0, "a"), unit(2, 1, "b")})));
  EXPECT_THAT(claim({}, 20), ElementsAre("v1/c0/a"));
  backend_->advance(40);
  EXPECT_THAT(claim({0}), ElementsAre("v2/c1/b"));  // though it is cold and newer
  EXPECT_THAT(claim({}), ElementsAre("v1/c0/a"));
  EXPECT_THAT(claim({}), IsEmpty());
}

TEST_P(StoreConformance, AClaimIsRenewedAndReleasedByItsHolderAlone) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b");
  const std::string& id = a.unit_id();
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  EXPECT_THAT(claim({}, 20, "first"), ElementsAre(id));
  backend_->advance(40);
  // Renewed late, but before anybody took it.
  ASSERT_TRUE(succeeded(beat("first", 1000, {id, "never planned"})));
  ASSERT_TRUE(succeeded(beat("second", 1000, {id}, 0)));
  EXPECT_THAT(claim({}, 3'600'000, "second"), IsEmpty());
  ASSERT_TRUE(succeeded(beat("first", 1000, {id}, 0)));
  EXPECT_THAT(claim({}, 3'600'000, "second"), ElementsAre(id));
  // Too late now: it is another one's.
  ASSERT_TRUE(succeeded(beat("first", 1000, {id}, 0)));
  ASSERT_TRUE(succeeded(store_->releaseUnits("first", {a})));
  EXPECT_THAT(claim({}), IsEmpty());
  ASSERT_TRUE(succeeded(store_->releaseUnits("second", {a})));
  ASSERT_TRUE(succeeded(beat("second", 1000, {id})));  // it has given it up
  EXPECT_THAT(claim({}, 20, "third"), ElementsAre(id));
  // A slow worker may still be the first to record it.
  backend_->advance(40);
  ASSERT_TRUE(succeeded(leader.planUnits({b})));
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "first")).value(), PushOutcome::kAccepted);
  EXPECT_THAT(claimAll(), ElementsAre(b.unit_id()));
}

TEST_P(StoreConformance, AClockSetBackAnHourEndsClaims) {
  const Leadership leader = lead();
  ASSERT_TRUE(succeeded(leader.planUnits({unit(1, 0, "a")})));
  EXPECT_THAT(claim({}, 60'000, "dead"), SizeIs(1));
  EXPECT_THAT(claim({}), IsEmpty());
  backend_->turnBack(3'600'000);
  EXPECT_THAT(claim({}), SizeIs(1));
}

TEST_P(StoreConformance, ARefusedUnitCanBeHeldBack) {
  const Leadership leader = lead();
  const auto a = unit(1, 0, "a");
  for (const uint64_t hold_ms : {20u, 3'600'000u}) {
    ASSERT_TRUE(succeeded(leader.planUnits({a})));
    EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
    const auto recorded = store_->readRecorded(1).value();
    ASSERT_TRUE(succeeded(
        leader.rejectEvaluation(recorded.at(0), RefusalKind::kInvalid, "no", &a, hold_ms)));
    EXPECT_EQ(store_->openUnits().value(), 1u);
    backend_->advance(40);
    EXPECT_THAT(claim({}), SizeIs(hold_ms == 20 ? 1 : 0));
  }
}

TEST_P(StoreConformance, WhoHasNothingToDoHearsOfNewsOnce) {
  EXPECT_FALSE(news());
  const Leadership leader = lead();
  EXPECT_TRUE(news());  // a policy
  EXPECT_FALSE(news());
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  EXPECT_TRUE(news());
  EXPECT_THAT(claim({}), SizeIs(1));
  ASSERT_TRUE(succeeded(beat("w", 1000)));
  push("r1");
  push("r2");
  EXPECT_FALSE(news());  // what workers do is none
  ASSERT_TRUE(succeeded(store_->releaseUnits("w", {a})));
  EXPECT_TRUE(news());
  EXPECT_EQ(store_->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
  EXPECT_FALSE(news());
  const auto recorded = store_->readRecorded(1).value();
  ASSERT_TRUE(
      succeeded(leader.rejectEvaluation(recorded.at(0), RefusalKind::kInvalid, "no", &a, 0)));
  EXPECT_TRUE(news());
  const auto entries = store_->readInbox(2, 0).value();
  ASSERT_TRUE(succeeded(leader.reject(entries.at(0), RefusalKind::kInvalid, "no")));
  EXPECT_TRUE(news());  // room
  ASSERT_TRUE(succeeded(leader.commit(commitOf(0, {entries.at(1)}))));
  EXPECT_TRUE(news());
  ASSERT_TRUE(succeeded(leader.reissueTicket(1)));
  EXPECT_TRUE(news());
  ASSERT_TRUE(succeeded(leader.resetTickets(1)));
  EXPECT_TRUE(news());
  ASSERT_TRUE(succeeded(store_->createRun(runSpec("aa"))));
  (void)news();
  ASSERT_TRUE(store_->changeControl(**store_->readControl()).value());
  EXPECT_TRUE(news());
  EXPECT_FALSE(news());
  EXPECT_TRUE(backend_->open()->awaitNews(1, [] { return false; }).value());  // new to a new one
}

}  // namespace
}  // namespace allot::test
