// RedisStore when somebody else writes into a run's keys: nothing that no store of ours wrote
// counts.
#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "core/digest.h"
#include "core/evaluation/answers.h"
#include "store/redis/redis_connection.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

using std::chrono::milliseconds;

class RedisStrangers : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() { return std::move(*openRedisStore(server_.url(), "run", 5000)); }

  RedisServer server_;
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
};

TEST_F(RedisStrangers, AnEvaluationPastThePushCountsNothing) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  ASSERT_EQ(store->pushEvaluation(evaluationOf(a, "w")).value(), PushOutcome::kAccepted);
  const std::string forged = evaluationOf(a, "stranger").SerializeAsString();
  const std::string large(kLargestResult + 1, 'x');
  for (const std::string& payload : {forged, std::string("\xff\xff"), large})
    ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:eval", "*", "id", a.unit_id(), "r", payload}));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:eval", "*", "odd", "fields"}));
  const auto recorded = store->readRecorded(10).value();
  ASSERT_THAT(recorded, SizeIs(5));
  EXPECT_EQ(recorded[0].result.worker(), "w");
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(recorded[i].result.ByteSizeLong(), 0u) << i;
    ASSERT_TRUE(
        succeeded(leader.rejectEvaluation(recorded[i], RefusalKind::kInvalid, "no", nullptr, 0)));
  }
  // The one who recorded the unit stands.
  EXPECT_THAT(store->readRecorded(10).value(), SizeIs(1));
  EXPECT_EQ(store->pushEvaluation(evaluationOf(a, "w2")).value(), PushOutcome::kDuplicate);
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  EXPECT_THAT(store->claimUnits({.holder = "w", .lease_ms = 1000}).value(), IsEmpty());
}

// What a stranger puts in the place of a signature costs the entry alone, and stays in the server.
TEST_F(RedisStrangers, ASignatureOfAnotherSizeIsNone) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  const std::string payload = evaluationOf(a, "w").SerializeAsString();
  for (const size_t size : {size_t{0}, size_t{95}, size_t{96}, size_t{97}, size_t{1} << 20}) {
    const std::string signature(size, 's');
    ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "id", "r", "r", "x", "s", signature}));
    const auto entry = valueOf(raw_.call(
        {"XADD", "allot:{run}:eval", "*", "id", a.unit_id(), "r", payload, "s", signature}));
    ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:units_done", a.unit_id(), entry.view().text()}));
    const std::string taken = size == 96 ? signature : "";
    EXPECT_EQ(store->readInbox(10, 0).value().at(0).signature, taken);
    const auto recorded = store->readRecorded(10).value();
    EXPECT_EQ(recorded.back().signature, taken);
    EXPECT_EQ(recorded.back().result.worker(), "w");
  }
}

// Whoever has a worker's account may write `eval` and `units_done`.
TEST_F(RedisStrangers, AnAcceptedEvaluationIsNeverReplaced) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a");
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  ASSERT_TRUE(succeeded(store->pushEvaluation(evaluationOf(a, "honest"))));
  std::this_thread::sleep_for(milliseconds(2));  // an id of its own
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store->readRecorded(10).value())));
  const auto accepted = store->readEvaluations("", 10).value();
  ASSERT_THAT(accepted, SizeIs(1));
  const std::string payload = evaluationOf(a, "liar").SerializeAsString();
  const auto forge = [&](const std::string& id) {
    const auto entry =
        valueOf(raw_.call({"XADD", "allot:{run}:eval", id, "id", a.unit_id(), "r", payload}));
    EXPECT_TRUE(raw_.call({"HSET", "allot:{run}:units_done", a.unit_id(), entry.view().text()}));
    return valueOf(store->readRecorded(10)).at(0);
  };
  const auto honest = [&] {
    const auto all = store->readEvaluations("", 10).value();
    return all.size() == 1 && all[0].result.worker() == "honest";
  };
  // Also under the very id of the accepted entry, in the stream that workers write.
  Evaluation forged = forge(accepted[0].entry_id);
  ASSERT_TRUE(succeeded(leader.rejectEvaluation(forged, RefusalKind::kInvalid, "no", &a, 0)));
  EXPECT_TRUE(honest());
  forged = forge("*");
  EXPECT_EQ(forged.result.ByteSizeLong(), 0u);
  forged.result = evaluationOf(a, "liar");
  for (const std::string& id : {accepted[0].entry_id, forged.entry_id}) {
    forged.entry_id = id;
    ASSERT_TRUE(succeeded(leader.acceptEvaluations({forged})));
    EXPECT_TRUE(honest());
    ASSERT_TRUE(succeeded(leader.rejectEvaluation(forged, RefusalKind::kInvalid, "no", &a, 0)));
    EXPECT_TRUE(honest());
  }
  EXPECT_THAT(store->readRecorded(10).value(), IsEmpty());
  ASSERT_TRUE(succeeded(leader.planUnits({a})));
  EXPECT_EQ(store->openUnits().value(), 0u);
}

// A worker's account can delete what is recorded and open, and cannot make a run end without it.
TEST_F(RedisStrangers, UnitsThatSomebodyDeletesAreOpenedAgain) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 0, "c"), d = unit(1, 0, "d");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c, d})));
  for (const auto& of : {a, b}) ASSERT_TRUE(store->pushEvaluation(evaluationOf(of, "w")));
  EXPECT_THAT(valueOf(leader.repair({})), IsEmpty());
  ASSERT_TRUE(succeeded(leader.acceptEvaluations({store->readRecorded(1)->at(0)})));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:eval", "MAXLEN", "0", "*", "x", "y"}));
  EXPECT_THAT(valueOf(leader.repair({})), ElementsAre("units"));
  ASSERT_TRUE(raw_.call({"ZREM", "allot:{run}:units", c.unit_id()}));
  // Another in its place, so that their number stays.
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:units", "0", "nobody's"}));
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:free_units", "0", "0000:0/nobody's"}));
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:free_groups", "0", "0000:0"}));
  EXPECT_EQ(store->openUnits().value(), 3u);
  EXPECT_THAT(valueOf(leader.repair({})), Contains("units"));
  EXPECT_THAT(valueOf(leader.repair({})), Contains("units"));  // too many now
  EXPECT_THAT(valueOf(leader.repair({})), IsEmpty());
  std::vector<std::string> claimed;
  for (int i = 0; i < 9; ++i) {
    const auto units = store->claimUnits({.holder = "w", .lease_ms = 60'000}).value();
    for (const auto& of : units) claimed.push_back(of.unit_id());
  }
  EXPECT_THAT(claimed, ElementsAre(b.unit_id(), c.unit_id(), d.unit_id()));
  ASSERT_TRUE(store->pushEvaluation(evaluationOf(b, "w")));
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(store->readRecorded(10).value())));
  EXPECT_THAT(store->readEvaluations("", 10).value(), SizeIs(2));
}

// What a stranger puts in the place of answers costs nobody the evaluation.
TEST_F(RedisStrangers, AnswersThatNoPushCanHaveMadeAreLeftOut) {
  auto store = open();
  const Leadership leader(*store, store->acquireLease("a", 3'600'000)->epoch);
  const auto a = unit(1, 0, "a"), b = unit(1, 0, "b"), c = unit(1, 0, "c");
  ASSERT_TRUE(succeeded(leader.planUnits({a, b, c})));
  const auto forge = [&](const v1::EvaluationUnit& of, const std::string& answers) {
    // Answers in the place of the result are no answers either. Other fields stay.
    const auto result = answered(evaluationOf(of, "stranger"), "in the wrong place");
    const auto entry = valueOf(raw_.call({"XADD", "allot:{run}:eval", "*", "id", of.unit_id(), "r",
                                          result.SerializeAsString(), "a", answers, "more", "1"}));
    ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:units_done", of.unit_id(), entry.view().text()}));
  };
  forge(a, "\xff\xff");
  forge(b, std::string(kLargestAnswers + 1, 'x'));
  forge(c, answered({}, "fine").answers().SerializeAsString());
  const auto recorded = store->readRecorded(10).value();
  ASSERT_THAT(recorded, SizeIs(3));
  EXPECT_EQ(recorded[1].answers_bytes, kLargestAnswers + 1);
  ASSERT_TRUE(succeeded(leader.acceptEvaluations(recorded)));
  const auto without = store->readEvaluations("", 10).value();
  const auto full = store->readAnswers("", 10).value();
  ASSERT_THAT(full, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(without.at(i).result.worker(), "stranger");
    EXPECT_FALSE(without[i].result.has_answers());
    EXPECT_EQ(full[i].result.has_answers(), i == 2);
    EXPECT_EQ(full[i].answers_bytes, without[i].answers_bytes);
  }
  EXPECT_EQ(full[1].answers_bytes, 0u);  // it was not copied
  EXPECT_EQ(full[2].result.answers().answers(0).text(), "fine");
  const auto kept = valueOf(raw_.call({"XRANGE", "allot:{run}:evaluations", "-", "+"}));
  EXPECT_EQ(kept.view()[0][1].size(), 8u);
  EXPECT_EQ(kept.view()[1][1].size(), 6u);
}

size_t residentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  return 0;
}

// A giant that arrives while we wait wakes us and stays where it is.
TEST_F(RedisStrangers, AGiantEntryNeverComesHere) {
  auto store = std::move(*openRedisStore(server_.url(), "run", 60'000));
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "appendonly", "no"}));  // for speed
  const size_t before = residentKib();
  ASSERT_GT(before, 0u);
  RedisConnection other(*parseRedisUrl(server_.url()), 60'000);
  std::thread stranger([&] {
    std::this_thread::sleep_for(milliseconds(100));
    // Made by the server, so that this process never has it either.
    EXPECT_TRUE(other.call({"EVAL",
                            "local id = redis.call('XADD', KEYS[1], '*', 'id', 'x', 'r', "
                            "string.rep(string.rep('x', 1024), 32 * 1024)); "
                            "local name = string.rep(string.rep('n', 1024), 8 * 1024); "
                            "id = redis.call('XADD', KEYS[1], '*', 'id', name, 'r', 'x'); "
                            "redis.call('HSET', KEYS[2], name, id)",
                            "2", "allot:{run}:inbox", "allot:{run}:pending"}));
  });
  const auto entries = store->readInbox(10, 60'000);
  stranger.join();
  ASSERT_TRUE(succeeded(entries));
  ASSERT_THAT(*entries, SizeIs(2));
  EXPECT_EQ(entries->at(1).result_id, "");  // as if it were pushed, with a name of 8 MiB
  EXPECT_EQ(entries->at(0).bytes, uint64_t{32} * 1024 * 1024);
  EXPECT_EQ(entries->at(0).payload, "");
  EXPECT_EQ(entries->at(0).result_id, "");
  EXPECT_LT(residentKib() - before, size_t{16} * 1024);
}

// A worker may write beats and units, whatever is in them.
TEST_F(RedisStrangers, OneBadBeatOrUnitHidesNobodyElses) {
  auto store = open();
  v1::WorkerBeat beat;
  beat.set_worker("sound");
  ASSERT_TRUE(succeeded(store->beat({.beat = beat, .ttl_ms = 60'000})));
  ASSERT_TRUE(
      raw_.call({"ZADD", "allot:{run}:workers", "9e15", "none", "9e15", "bad", "9e15", "large"}));
  ASSERT_TRUE(raw_.call(
      {"HSET", "allot:{run}:beats", "bad", "\xff\xff", "large", std::string(2 << 20, '\x08')}));
  const auto workers = valueOf(store->listWorkers());
  ASSERT_THAT(workers, SizeIs(1));
  EXPECT_EQ(workers.at(0).worker(), "sound");
  ASSERT_TRUE(
      raw_.call({"EVAL",
                 "local ends = redis.call('TIME')[1] * 1000 + 300000 "
                 "for i = 1, 20000 do redis.call('ZADD', KEYS[1], ends, i) "
                 "redis.call('HSET', KEYS[2], i, ARGV[1]) end",
                 "2", "allot:{run}:workers", "allot:{run}:beats", beat.SerializeAsString()}));
  EXPECT_EQ(valueOf(store->listWorkers()).size(), kMostWorkers);

  const uint64_t epoch = store->acquireLease("a", 60'000)->epoch;
  ASSERT_TRUE(succeeded(
      Leadership(*store, epoch).planUnits({unit(0, 0, "a"), unit(0, 0, "b"), unit(0, 0, "c")})));
  // Units that nobody planned, one of them with a name of a megabyte.
  const std::string large = "nobody's " + std::string(1 << 20, 'b');
  for (const std::string& name : {std::string("nobody's"), large}) {
    ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:units", "0", name}));
    ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:free_units", "0", "0000:0/" + name}));
  }
  ASSERT_TRUE(raw_.call({"ZADD", "allot:{run}:free_groups", "0", "0000:0"}));
  EXPECT_THAT(valueOf(store->listUnits()), SizeIs(3));
  size_t claimed = 0;
  for (int i = 0; i < 3; ++i)
    claimed += store->claimUnits({.holder = "w", .count = 3, .lease_ms = 60'000})->size();
  EXPECT_EQ(claimed, 3u);
}

TEST_F(RedisStrangers, WhatOthersWroteIsRefusedNotTrusted) {
  auto store = open();
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", "\xff\xff\xff"}));
  EXPECT_TRUE(failsWith(store->readState(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policy", "version", "0", "blob", "", "sha256", "x"}));
  EXPECT_TRUE(failsWith(store->readPolicy(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:spec", "sha256", "x", "started_unix_ms", "soon"}));
  EXPECT_TRUE(failsWith(store->readSpec(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "1-0", "other", "\xff"}));
  EXPECT_TRUE(failsWith(store->readHistory(0, 10), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "running"}));  // no revision
  EXPECT_TRUE(failsWith(store->readControl(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "on fire", "revision", "1"}));
  EXPECT_THAT(store->readControl(), isError(ErrorCode::kData, HasSubstr("none of running, paused, "
                                                                        "stopped, finished")));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:tickets", "many"}));
  EXPECT_TRUE(failsWith(store->nextTicket(), ErrorCode::kUnavailable));  // until it is mended
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:refused_counts", "stale", "many"}));
  EXPECT_TRUE(failsWith(store->readRefusalCounts(), ErrorCode::kData));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:seen", "not a set"}));
  EXPECT_TRUE(failsWith(store->pushResult(result("r1"), 10), ErrorCode::kUnavailable));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:inbox", "*", "odd", "fields"}));
  EXPECT_EQ(valueOf(store->readInbox(10, 0)).at(0).result_id, "");
}

// What is stored is whole, and yet nothing of ours would have stored it.
TEST_F(RedisStrangers, NumbersThatNobodyOfUsStoresAreRefusedWhereTheyAreRead) {
  auto store = open();
  const auto refused = [](const auto& read, const std::string& sentence,
                          ErrorCode code = ErrorCode::kData) {
    EXPECT_TRUE(failsWith(read, code)) << sentence;
    const std::string said = read ? "" : read.error().message;
    EXPECT_THAT(said, HasSubstr(sentence));
  };
  const std::string beyond = std::to_string((uint64_t{1} << 53) + 1);
  v1::PolicySnapshot odd = policy(3), late = policy(0);
  odd.set_logits(1, std::numeric_limits<double>::quiet_NaN());
  late.set_version((uint64_t{1} << 53) + 1);
  for (const auto& [stored, sentence] :
       {std::pair{odd, "number that is not finite"}, {late, "version is beyond 2^53"}}) {
    const std::string bytes = stored.SerializeAsString();
    ASSERT_TRUE(
        raw_.call({"HSET", "allot:{run}:policy", "blob", bytes, "sha256", sha256Hex(bytes)}));
    refused(store->readPolicy(), sentence);
    v1::AggregatorState state;
    *state.mutable_policy() = stored;
    ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", state.SerializeAsString()}));
    refused(store->readState(), sentence);
  }
  v1::AggregatorState moments = state(1);
  moments.add_second_moment(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:state", moments.SerializeAsString()}));
  refused(store->readState(), "a state with a number that is not finite");

  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policies", "3", odd.SerializeAsString()}));
  refused(store->readPolicies(3, 1), "a policy with a number that is not finite");
  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:policies", "3", policy(4).SerializeAsString()}));
  refused(store->readPolicies(3, 1), "holds version 4 as version 3");

  v1::IterationRecord record;
  record.set_version(2);
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "1-0", "rec", record.SerializeAsString()}));
  refused(store->readHistory(0, 1), "a record of update 2");
  record.add_weights(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "2-0", "rec", record.SerializeAsString()}));
  refused(store->readHistory(1, 1), "a weight or baseline that is not finite");

  ASSERT_TRUE(raw_.call({"HSET", "allot:{run}:control", "desired", "running", "experiment", "",
                         "file", "", "revision", beyond}));
  refused(store->readControl(), "which is beyond 2^53");
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:tickets", beyond}));
  refused(store->nextTicket(), "which is beyond 2^53", ErrorCode::kUnavailable);
}

TEST_F(RedisStrangers, AHistoryAheadOfThePolicyStopsTheCommitBeforeItsFirstWrite) {
  auto store = open();
  const Leadership leader = lead(*store);
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  ASSERT_TRUE(raw_.call({"XADD", "allot:{run}:history", "5-0", "rec", "x"}));
  const auto entries = store->readInbox(1, 0).value();
  EXPECT_TRUE(failsWith(leader.commit(commitOf(0, entries)), ErrorCode::kInternal));
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(store->inboxSize().value(), 1u);
}

TEST_F(RedisStrangers, AKeyOfAnotherTypeStopsTheCommitBeforeItsFirstWrite) {
  auto store = open();
  const Leadership leader = lead(*store);
  ASSERT_TRUE(succeeded(store->pushResult(result("r1"), 10)));
  const auto entries = store->readInbox(10, 0).value();
  ASSERT_TRUE(raw_.call({"DEL", "allot:{run}:seen"}));
  ASSERT_TRUE(raw_.call({"SET", "allot:{run}:seen", "x"}));
  EXPECT_TRUE(failsWith(leader.commit(commitOf(0, entries)), ErrorCode::kUnavailable));
  EXPECT_EQ(store->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_TRUE(store->readHistory(0, 10).value().empty());
  EXPECT_THAT(valueOf(leader.repair({})), ElementsAre("seen"));
  EXPECT_TRUE(succeeded(leader.commit(commitOf(0, entries))));
}

}  // namespace
}  // namespace allot::test
