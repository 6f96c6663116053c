// A process with a worker's account breaks keys of the run, or puts results of its own under the
// names of other workers: the run goes on without a person's help, also with an aggregator that is
// started anew, and verifies. On a real Redis with the accounts of store/redis/acl.h.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "aggregator/learner/aggregator.h"
#include "aggregator/learner/begin_run.h"
#include "core/learning/replay.h"
#include "core/learning/update.h"
#include "core/spec/spec_change.h"
#include "core/worker_beats.h"
#include "store/checks.h"
#include "store/redis/acl.h"
#include "store/redis/redis_connection.h"
#include "tests/identity.h"
#include "tests/results.h"
#include "tests/store/redis_server.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

using Words = std::vector<std::string>;

constexpr uint32_t kLayers = 4;
constexpr const char* kLargestId = "18446744073709551615-18446744073709551615";

const std::string kTwentyMegabytes = "local large = string.rep(string.rep('x', 1000), 20000) ";

struct Attack {
  const char* what;
  std::vector<Words> commands;  // each as {"XADD", "key of the run", ...}
};

class BrokenKeys : public testing::Test {
 protected:
  void SetUp() override {
    run_.experiment = tinyExperiment(
        {"spec.update.episodesPerUpdate=2", "spec.update.maxUpdates=100",
         "spec.evaluation={everyUpdates: 2, budgets: [8], schedules: [uniform, learned], methods: "
         "[s2anta-sys]}"});
    run_.sha256 = specDigest(run_.experiment);
    run_.started_unix_ms = 1;
  }
  std::string urlOf(const std::string& user) const {
    return server_.url() + "?user=" + user + "&password-file=" + server_.folder() + "/acl/" + user +
           ".password";
  }
  std::unique_ptr<Store> open(const std::string& user) {
    auto store = valueOf(openRedisStore(urlOf(user), run_id_));
    store->signAs(identityOf("honest"));
    return store;
  }
  std::unique_ptr<Aggregator> start(Store* store) {
    // Another holder each time; the lease of the one before has ended.
    now_ += 60'000;
    EXPECT_TRUE(store->releaseLease(holder_));
    holder_ = "a" + std::to_string(now_);
    return std::make_unique<Aggregator>(store, run_,
                                        AggregatorOptions{.holder = holder_,
                                                          .wait_ms = 1,
                                                          .now = [this] { return now_; },
                                                          .unix_now = [this] { return now_; }});
  }
  // The commands of a worker's account. Some are refused by then: that is the point.
  void attack(const Attack& attack) {
    RedisConnection stranger(*parseRedisUrl(urlOf("worker")), 20'000);
    for (Words words : attack.commands) {
      const size_t first = words[0] == "EVAL" ? 3 : 1;
      const size_t keys = words[0] == "EVAL" ? std::stoul(words[2]) : 1;
      for (size_t i = first; i < first + keys; ++i)
        words.at(i).insert(0, "allot:{" + run_id_ + "}:");
      (void)stranger.call({words.begin(), words.end()});
    }
  }
  // Holds a call to what a broken key may do to it: nothing, or waiting.
  template <typename T>
  bool done(const Result<T>& result) {
    if (result) return true;
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable) << result.error().message;
    return false;
  }
  // What an honest worker does in one round: evaluate, learn.
  void evaluate(Store* worker) {
    v1::WorkerBeat beat;
    beat.set_worker("honest");
    done(worker->readSpec());  // results are signed for it
    done(worker->beat({.beat = beat, .ttl_ms = 10'000}));
    if (const auto units = worker->claimUnits({.holder = "honest", .count = 9, .lease_ms = 1});
        done(units)) {
      for (const v1::EvaluationUnit& unit : *units) {
        v1::EvaluationResult result;
        *result.mutable_unit() = unit;
        result.set_worker(honest_);
        for (uint32_t i = 0; i < unit.question_count(); ++i)
          result.add_scores()->set_question(unit.first_question() + i);
        done(worker->pushEvaluation(result));
      }
    }
  }
  void learn(Store* worker) {
    const auto policy = worker->readPolicy();
    if (!done(policy) || !*policy) return;
    const uint64_t version = (*policy)->snapshot.version();
    const auto tickets = worker->takeTickets(
        {.count = 2, .limit = run_.synchronous ? 2 * version + 2 : store::kLargestNumber});
    if (!done(tickets)) return;
    for (const uint64_t ticket : *tickets) {
      auto result = episodeOf(run_.experiment.spec(), (*policy)->snapshot, ticket);
      result.set_worker(honest_);
      done(worker->pushResult(result, 100));
    }
  }
  // Works until that many more updates are there.
  void goOn(Aggregator* aggregator, Store* worker, uint64_t updates) {
    const auto version = [&] {
      const auto policy = valueOf(worker->readPolicy());
      return policy ? policy->snapshot.version() : 0;
    };
    const uint64_t wanted = version() + updates;
    for (int round = 0; version() < wanted; ++round) {
      ASSERT_LT(round, 40) << "the run stands still at version " << version();
      evaluate(worker);
      learn(worker);
      now_ += 6'000;  // the lease is renewed
      done(aggregator->tick());
    }
  }
  void verify() {
    const auto reader = open("reader");
    Replay replay(run_.experiment, initialState(run_.experiment, kLayers), run_.synchronous);
    uint64_t version = 0;
    for (auto records = valueOf(reader->readHistory(0, 100)); !records.empty();
         records = valueOf(reader->readHistory(version, 100))) {
      for (const auto& record : records) ASSERT_THAT(replay.next(record), succeeds());
      version = records.back().version();
    }
    EXPECT_EQ(valueOf(valueOf(reader->readState())).policy().version(), version);
  }
  static v1::ModelFacts facts() {
    v1::ModelFacts facts;
    facts.set_layers(kLayers);
    facts.set_weights_sha256("w");
    return facts;
  }
  // A run that is attacked before its first update, later, and under an aggregator that starts.
  void survives(const Attack& each, bool often = true) {
    SCOPED_TRACE(each.what);
    run_id_ = "run" + std::to_string(++runs_);
    if (often) attack(each);
    const auto store = open("aggregator");
    const auto worker = open("worker");
    // Redis frees what was deleted a little later.
    const auto inTime = [](const auto& call) {
      for (int i = 0; i < 10'000 && !call(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return call();
    };
    ASSERT_TRUE(inTime([&] { return done(store->createRun(run_)); }));
    auto aggregator = start(store.get());
    attack(each);
    done(worker->agreeOnModel(facts()));
    // Once its key is mended.
    done(aggregator->tick());
    ASSERT_TRUE(inTime([&] { return done(worker->agreeOnModel(facts())); }));
    if (often) attack(each);
    goOn(aggregator.get(), worker.get(), 2);
    if (often) attack(each);
    goOn(aggregator.get(), worker.get(), 3);
    attack(each);
    aggregator = start(store.get());
    goOn(aggregator.get(), worker.get(), 2);
    verify();
    // Nothing that was accepted is lost, and nothing planned is forgotten.
    for (int round = 0; *store->openUnits() > 0; ++round) {
      ASSERT_LT(round, 40) << "units stay open";
      evaluate(worker.get());
      now_ += 6'000;
      done(aggregator->tick());
    }
    std::set<std::string> versions;
    const auto accepted = valueOf(store->readEvaluations("", 1000));
    for (const Evaluation& each : accepted) {
      versions.insert(std::to_string(each.result.unit().policy_version()));
      EXPECT_EQ(each.result.worker(), honest_);
    }
    EXPECT_THAT(versions, testing::IsSupersetOf({"0", "2", "4", "6"}));
  }

  test::RedisServer server_{
      {"--aclfile", "FOLDER/acl/users.acl", "--appendfsync", "no", "--maxmemory", "40mb",
       "--lua-time-limit", "100"},
      [](const std::string& folder) { ASSERT_TRUE(writeAcl(folder + "/acl")); }};
  const std::string honest_ = identityOf("honest").name();
  RunSpec run_;
  std::string run_id_;
  std::string holder_ = "nobody";
  uint64_t now_ = 1'000'000;
  int runs_ = 0;
};

TEST_F(BrokenKeys, OfAnotherType) {
  // Members of sorted sets can be deleted by a worker's account, so that the key is free.
  const std::string empty =
      "for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf')) do "
      "redis.call('ZREM', KEYS[1], m) end";
  for (const char* key : {"seen", "pending", "inbox", "eval", "news", "tickets", "reissue", "units",
                          "unit_groups", "unit_specs", "unit_holders", "units_done", "free_units",
                          "free_groups", "workers", "beats", "audit_answers"})
    survives({key, {{"EVAL", empty, "1", key}, {"SETNX", key, "x"}}});
}

TEST_F(BrokenKeys, StreamsWithoutIdsLeft) {
  for (const char* key : {"news", "inbox", "eval"})
    survives({key, {{"XADD", key, kLargestId, "id", "a", "r", "b"}}});
}

TEST_F(BrokenKeys, FullOfJunk) {
  survives(
      {"tickets that nobody handed out",
       {{"EVAL", "for i = 1, 200000 do redis.call('ZADD', KEYS[1], 1000000 + i, 1000000 + i) end",
         "1", "reissue"}}});
  survives({"tickets that were handed out, and words",
            {{"INCRBY", "tickets", "300000"},
             {"EVAL",
              "for i = 0, 200000 do redis.call('ZADD', KEYS[1], i, i) end "
              "redis.call('ZADD', KEYS[1], 0, ' 0', 0, '0x1', 0, '1e0', 0, 'word')",
              "1", "reissue"}}});
  survives({"more tickets than there are", {{"INCRBY", "tickets", "9223372036854000000"}}});
  survives({"fewer tickets than none", {{"INCRBY", "tickets", "-100000"}}});
  survives(
      {"beats of nobody",
       {{"EVAL", "for i = 1, 2000 do redis.call('HSET', KEYS[1], i, string.rep('x', 1000)) end",
         "1", "beats"}}});
  survives({"ghosts",
            {{"EVAL",
              "local ends = redis.call('TIME')[1] * 1000 + 300000 "
              "for i = 1, 6000 do redis.call('ZADD', KEYS[1], ends, i) "
              "redis.call('HSET', KEYS[2], i, 'x') end",
              "2", "workers", "beats"}}});
  survives({"a large entry", {{"XADD", "inbox", "*", "id", "a", "r", std::string(1 << 20, 'r')}}});
  survives({"units that nobody planned",
            {{"EVAL",
              "for i = 1, 6000 do redis.call('ZADD', KEYS[1], 0, 'u' .. i) "
              "redis.call('ZADD', KEYS[2], 0, '0000:0/u' .. i) "
              "redis.call('ZADD', KEYS[3], 0, '0000:' .. i % 3000) end",
              "3", "units", "free_units", "free_groups"}}});
  survives({"another model", {{"SETNX", "model", "no facts"}}});
  survives({"a model of 20 MB",
            {{"EVAL", kTwentyMegabytes + "redis.call('SETNX', KEYS[1], large)", "1", "model"}}});
}

// Tickets that were handed out, and above all those that have counted, are not handed out again.
TEST_F(BrokenKeys, TicketsTakenBack) {
  run_id_ = "back";
  const auto store = open("aggregator"), worker = open("worker");
  ASSERT_THAT(store->createRun(run_), succeeds());
  ASSERT_THAT(worker->agreeOnModel(facts()), succeeds());
  auto aggregator = start(store.get());
  goOn(aggregator.get(), worker.get(), 30);
  const uint64_t handed_out = valueOf(store->nextTicket());
  for (const bool anew : {false, true}) {
    attack({"", {{"INCRBY", "tickets", "-50"}}});
    if (anew) aggregator = start(store.get());  // which knows the tickets that have counted alone
    now_ += 6'000;
    done(aggregator->tick());
    EXPECT_GT(valueOf(store->nextTicket()) + 8, handed_out);
    EXPECT_THAT(aggregator->snapshot().last_error, testing::HasSubstr("mended: tickets"));
    goOn(aggregator.get(), worker.get(), 3);
  }
  verify();
}

// It is at work for ever, says its beat: on a ticket of a synchronous run, on units of evaluation.
TEST_F(BrokenKeys, WorkThatNeverEnds) {
  for (const bool synchronous : {false, true}) {
    SCOPED_TRACE(synchronous);
    run_id_ = synchronous ? "lazy-rollout" : "lazy-evaluation";
    run_.synchronous = synchronous;
    // An audit by this worker would wait for it, too.
    run_.experiment.mutable_spec()->mutable_audit()->set_share(0);
    run_.sha256 = specDigest(run_.experiment);
    const auto store = open("aggregator"), worker = open("worker"), lazy = open("worker");
    ASSERT_THAT(store->createRun(run_), succeeds());
    ASSERT_THAT(worker->agreeOnModel(facts()), succeeds());
    auto aggregator = start(store.get());
    done(aggregator->tick());
    std::vector<std::string> held;
    const auto units =
        valueOf(lazy->claimUnits({.holder = "lazy", .count = 9, .lease_ms = 600'000}));
    for (const auto& unit : units) held.push_back(unit.unit_id());
    ASSERT_FALSE(held.empty());
    if (synchronous) {
      valueOf(lazy->takeTickets({.count = 1}));
    }
    const uint64_t first = now_;
    const auto goes = [&] {
      const auto policy = valueOf(worker->readPolicy());
      return policy && policy->snapshot.version() >= 3 && valueOf(store->openUnits()) == 0;
    };
    std::string why;
    for (int round = 0; !goes(); ++round) {
      ASSERT_LT(round, 200) << "the run stands still";
      v1::WorkerBeat beat;
      beat.set_worker("lazy");
      beat.set_state(std::string(wordOf(WorkerState::kRollout)));
      beat.set_seen_unix_ms(now_);
      done(lazy->beat({.beat = beat, .ttl_ms = 60'000, .units = held, .claim_ms = 600'000}));
      evaluate(worker.get());
      learn(worker.get());
      now_ += 60'000;
      done(aggregator->tick());
      if (const std::string now = aggregator->snapshot().waiting; !now.empty()) why = now;
    }
    EXPECT_LT(now_ - first, 4 * 60 * 60'000u);
    if (synchronous) {
      EXPECT_THAT(why, testing::HasSubstr("no result has counted for 30 minutes; at work: lazy"));
    }
  }
}

TEST_F(BrokenKeys, Emptied) {
  for (const char* stream : {"inbox", "eval", "news"})
    survives({stream, {{"XADD", stream, "MAXLEN", "0", "*", "x", "y"}}});
  const std::string empty =
      "for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf')) do "
      "redis.call('ZREM', KEYS[1], m) end ";
  survives({"units", {{"EVAL", empty, "1", "units"}}});
  survives(
      {"units, and others in their place",
       {{"EVAL", empty + "for i = 1, 4 do redis.call('ZADD', KEYS[1], 0, i) end", "1", "units"}}});
}

// The server has 40 MB.
TEST_F(BrokenKeys, FilledToTheLimit) {
  const auto full = [this](const char* key, const std::string& script) {
    survives({key, {{"EVAL", kTwentyMegabytes + script, "1", key}}}, false);
  };
  full("beats", "for i = 1, 40000 do redis.call('HSET', KEYS[1], i, string.rep('x', 1000)) end");
  for (const char* hash :
       {"beats", "pending", "unit_groups", "unit_holders", "units_done", "audit_answers"})
    full(hash, "redis.call('HSET', KEYS[1], 'a', large, 'b', large)");
  for (const char* set : {"reissue", "units", "free_units", "free_groups", "workers"})
    full(set, "redis.call('ZADD', KEYS[1], 0, large, 0, large .. 'b')");
  for (const char* stream : {"news", "inbox", "eval"})
    full(stream, "for i = 1, 2 do redis.call('XADD', KEYS[1], '*', 'id', 'a', 'r', large) end");
  full("tickets", "redis.call('SETNX', KEYS[1], large .. large)");
}

// All others get BUSY. The administrator ends the script, and where it has written, a restart does.
TEST_F(BrokenKeys, AScriptWithoutEnd) {
  run_id_ = "run";
  const auto store = open("aggregator"), worker = open("worker");
  ASSERT_THAT(store->createRun(run_), succeeds());
  ASSERT_THAT(worker->agreeOnModel(facts()), succeeds());
  auto aggregator = start(store.get());
  goOn(aggregator.get(), worker.get(), 1);
  const auto block = [&](const std::string& script) {
    return std::thread([this, script] { attack({"", {{"EVAL", script, "1", "beats"}}}); });
  };
  const auto call = [&](const std::vector<std::string_view>& words) {
    return RedisConnection(*parseRedisUrl(urlOf("admin")), 20'000).call(words);
  };
  // Until a script runs, and has run for 100 ms.
  const auto untilItRuns = [&] {
    while (call({"PING"})) std::this_thread::yield();
  };
  std::thread stranger = block("while true do end");
  untilItRuns();
  EXPECT_FALSE(done(worker->takeTickets({.count = 1})));
  EXPECT_THAT(call({"SCRIPT", "KILL"}), succeeds());
  stranger.join();
  goOn(aggregator.get(), worker.get(), 2);

  stranger = block("redis.call('HSET', KEYS[1], 'stranger', 'x') while true do end");
  untilItRuns();
  EXPECT_THAT(call({"SCRIPT", "KILL"}), isError(testing::HasSubstr("UNKILLABLE")));
  server_.killHard();
  stranger.join();
  server_.start();
  for (Store* client : {store.get(), worker.get()}) (void)client->readPolicy();  // connects again
  aggregator = start(store.get());
  goOn(aggregator.get(), worker.get(), 2);
  verify();
}

// It puts what waits there again with other scores, and has `pending` and `units_done` point at its
// own entries. It may know all that the server knows, and has no key but its own.
TEST_F(BrokenKeys, OtherScoresUnderTheNamesOfOthers) {
  run_id_ = "thief";
  const auto store = open("aggregator");
  const auto worker = open("worker");
  ASSERT_THAT(store->createRun(run_), succeeds());
  v1::ModelFacts facts;
  facts.set_layers(kLayers);
  facts.set_weights_sha256("w");
  auto aggregator = start(store.get());
  ASSERT_THAT(worker->agreeOnModel(facts), succeeds());
  ASSERT_THAT(aggregator->tick(), succeeds());

  RedisConnection thief(*parseRedisUrl(urlOf("worker")), 20'000);
  RedisConnection eye(*parseRedisUrl(urlOf("reader")), 20'000);
  const std::string prefix = "allot:{" + run_id_ + "}:";
  const WorkerIdentity own = identityOf("thief");
  size_t turn = 0;
  // Puts the entries of a stream, with other scores, under their names. Returns how many.
  const auto steal = [&](const char* stream, const char* names, auto changed, auto signedPart) {
    const auto read = valueOf(eye.call({"XRANGE", prefix + stream, "-", "+"}));
    size_t stolen = 0;
    for (; stolen < read.view().size(); ++stolen) {
      std::map<std::string, std::string> fields;
      const RedisView words = read.view()[stolen][1];
      for (size_t f = 0; f + 1 < words.size(); f += 2) {
        fields[std::string(words[f].text())] = words[f + 1].text();
      }
      const std::string payload = changed(fields["r"]);
      const auto& [kind, bytes] = signedPart(payload);
      // With the honest signature, one of its own key, or none, in turn.
      const std::string signature[] = {fields["s"], own.sign({kind, run_id_, run_.sha256}, bytes),
                                       ""};
      const auto entry = valueOf(thief.call({"XADD", prefix + stream, "*", "id", fields["id"], "r",
                                             payload, "s", signature[turn++ % 3]}));
      valueOf(thief.call({"HSET", prefix + names, fields["id"], entry.view().text()}));
    }
    return stolen;
  };
  size_t results = 0, evaluations = 0;
  for (int round = 0; round < 12; ++round) {
    evaluate(worker.get());
    learn(worker.get());
    results += steal(
        "inbox", "pending",
        [](const std::string& payload) {
          v1::EpisodeResult result;
          EXPECT_TRUE(result.ParseFromString(payload));
          for (v1::QuestionScore& of : *result.mutable_scores()) of.set_score(1 - of.score());
          result.set_reward(1 - result.reward());
          return result.SerializeAsString();
        },
        [](const std::string& payload) { return std::pair(kSignedResult, payload); });
    evaluations += steal(
        "eval", "units_done",
        [](const std::string& payload) {
          v1::EvaluationResult result;
          EXPECT_TRUE(result.ParseFromString(payload));
          for (v1::QuestionScore& score : *result.mutable_scores()) score.set_score(1);
          return result.SerializeAsString();
        },
        [](const std::string& payload) {
          return std::pair(kSignedEvaluation, store::signedBytes(payload, ""));
        });
    for (int ticks = 0; ticks == 0 || valueOf(store->inboxSize()) > 0; ++ticks) {
      ASSERT_LT(ticks, 10) << "a result of the thief waits to be counted";
      now_ += 6'000;
      ASSERT_THAT(aggregator->tick(), succeeds());
    }
  }
  EXPECT_EQ(results, 24u);
  EXPECT_GE(evaluations, 12u);
  // None of them counted, and what comes later does.
  EXPECT_EQ(valueOf(valueOf(store->readPolicy())).snapshot.version(), 0u);
  goOn(aggregator.get(), worker.get(), 3);
  verify();
  const auto records = valueOf(store->readHistory(0, 100));
  for (const auto& record : records) {
    for (const v1::EpisodeResult& result : record.results()) {
      const auto policies = valueOf(store->readPolicies(result.policy_version(), 1));
      auto honest = episodeOf(run_.experiment.spec(), policies.at(0), result.ticket());
      honest.set_worker(honest_);
      EXPECT_EQ(result.SerializeAsString(), honest.SerializeAsString());
    }
  }
  size_t accepted = 0;
  const auto all = valueOf(store->readEvaluations("", 1000));
  for (const Evaluation& each : all) {
    if (!each.accepted) continue;
    ++accepted;
    EXPECT_EQ(each.result.worker(), honest_);
    for (const v1::QuestionScore& score : each.result.scores()) EXPECT_EQ(score.score(), 0);
  }
  EXPECT_GE(accepted, 2u);
}

// Redis deletes any key of an `allkeys` policy once its memory is full.
TEST(EvictingStore, IsRefusedBeforeTheRunBegins) {
  for (const auto& [policy, taken] : {std::pair{"noeviction", true},
                                      {"volatile-lru", true},
                                      {"allkeys-lru", false},
                                      {"allkeys-random", false}}) {
    const test::RedisServer server({"--maxmemory-policy", policy});
    const auto store = valueOf(openRedisStore(server.url(), "run"));
    RunSpec run;
    run.experiment = tinyExperiment({});
    run.sha256 = specDigest(run.experiment);
    const auto begun = beginRun(store.get(), run);
    EXPECT_EQ(begun.has_value(), taken) << policy;
    EXPECT_EQ(valueOf(store->readSpec()).has_value(), taken);
    if (taken) continue;
    EXPECT_EQ(begun.error().code, ErrorCode::kUsage);
    EXPECT_THAT(begun.error().message, testing::HasSubstr(policy));
  }
}

}  // namespace
}  // namespace allot
