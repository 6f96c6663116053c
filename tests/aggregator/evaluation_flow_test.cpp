// A whole evaluation by many workers: real WorkerLoop, Aggregator and MemoryStore on one virtual
// clock, with an engine that only takes its time.
#include <algorithm>
#include <map>
#include <numeric>

#include "aggregator/learner/aggregator.h"
#include "core/spec/spec.h"
#include "store/memory/memory_store.h"
#include "tests/identity.h"
#include "tests/results.h"
#include "tests/sim/fiber.h"
#include "tests/sim/forwarding_store.h"
#include "worker/loop/worker_loop.h"

namespace allot {
namespace {

// Fibers on one clock; whoever is due next goes on.
class Clockwork {
 public:
  uint64_t now() const { return now_; }
  void add(std::function<void()> body) {
    parts_.push_back({std::make_unique<sim::Fiber>(std::move(body)), now_});
  }
  // In a body: lets the others go on for so long.
  void sleep(uint64_t ms) {
    parts_[running_].wake = now_ + ms;
    sim::Fiber::suspend();
  }
  // Until all bodies have returned.
  void run() {
    while (true) {
      size_t next = parts_.size();
      for (size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].fiber->done()) continue;
        if (next == parts_.size() || parts_[i].wake < parts_[next].wake) next = i;
      }
      if (next == parts_.size()) return;
      now_ = std::max(now_, parts_[next].wake);
      running_ = next;
      parts_[next].fiber->resume();
    }
  }

 private:
  struct Part {
    std::unique_ptr<sim::Fiber> fiber;
    uint64_t wake;
  };
  std::vector<Part> parts_;
  size_t running_ = 0;
  uint64_t now_ = 1'000'000;
};

// What a worker's store goes through.
struct Outage {
  uint64_t from_ms = 0, length_ms = 0;
  uint64_t timeout_ms = 0;  // how long a request waits in vain
};

// A server that is away for a while. Counts the requests, and the time lost by waiting for it.
class BlinkingStore final : public sim::ForwardingStore {
 public:
  BlinkingStore(std::unique_ptr<Store> inner, Clockwork* clock, Outage outage)
      : ForwardingStore(std::move(inner)), clock_(*clock), outage_(outage) {}

  uint64_t requests = 0;
  uint64_t lost_ms = 0;

  Result<std::optional<Control>> readControl() override {
    ALLOT_TRY(answer());
    return inner_->readControl();
  }
  Result<std::vector<v1::EvaluationUnit>> claimUnits(const ClaimRequest& request) override {
    ALLOT_TRY(answer());
    return inner_->claimUnits(request);
  }
  Status releaseUnits(const std::string& holder,
                      const std::vector<v1::EvaluationUnit>& units) override {
    ALLOT_TRY(answer());
    return inner_->releaseUnits(holder, units);
  }
  Result<PushOutcome> pushEvaluation(const v1::EvaluationResult& result) override {
    ALLOT_TRY(answer());
    return inner_->pushEvaluation(result);
  }
  Status beat(const Heartbeat& heartbeat) override {
    ALLOT_TRY(answer(heartbeat.patience_ms > 0 ? heartbeat.patience_ms : UINT64_MAX));
    return inner_->beat(heartbeat);
  }
  Result<std::optional<PublishedPolicy>> readPolicy() override {
    ALLOT_TRY(answer());
    return inner_->readPolicy();
  }
  Result<std::vector<uint64_t>> takeTickets(const TicketRequest& request) override {
    ALLOT_TRY(answer());
    return inner_->takeTickets(request);
  }
  Result<bool> awaitNews(uint64_t wait_ms, const std::function<bool()>& stop) override {
    ALLOT_TRY(answer());
    for (const uint64_t end = clock_.now() + wait_ms; clock_.now() < end && !stop();) {
      const auto news = inner_->awaitNews(0, stop);
      if (!news || *news) return news;
      clock_.sleep(100);
    }
    return false;
  }

 private:
  Status answer(uint64_t patience_ms = UINT64_MAX) {
    ++requests;
    const uint64_t now = clock_.now();
    if (now < outage_.from_ms || now >= outage_.from_ms + outage_.length_ms) return {};
    const uint64_t waited = std::min(patience_ms, outage_.timeout_ms);
    lost_ms += waited;
    clock_.sleep(waited);
    return fail(ErrorCode::kUnavailable, "the store is away");
  }
  Clockwork& clock_;
  const Outage outage_;
};

// Takes `unit_ms` for a unit, asking once a second whether to go on.
class SlowEngine final : public EpisodeEngine {
 public:
  SlowEngine(Clockwork* clock, uint64_t unit_ms, std::map<std::string, int>* evaluated)
      : clock_(*clock), unit_ms_(unit_ms), evaluated_(*evaluated) {}

  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot&, const std::string&,
                                                 const std::vector<uint64_t>&) override {
    return fail(ErrorCode::kInternal, "there is nothing to learn");
  }
  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>&) override {
    return fail(ErrorCode::kInternal, "nobody audits here");
  }
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    ++evaluated_[unit.unit_id()];
    for (uint64_t done = 0; done < unit_ms_; done += 1'000) {
      ALLOT_TRY(checkInterrupted());
      clock_.sleep(std::min<uint64_t>(1'000, unit_ms_ - done));
    }
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      result.add_scores()->set_question(unit.first_question() + i);
      result.mutable_scores()->rbegin()->set_score(score);
    }
    result.set_seconds(static_cast<double>(unit_ms_) / 1000);
    warm_ = {unit.chunk()};
    return result;
  }
  std::vector<uint32_t> warmChunks() const override { return warm_; }

  double score = 1;

 private:
  Clockwork& clock_;
  const uint64_t unit_ms_;
  std::map<std::string, int>& evaluated_;
  std::vector<uint32_t> warm_;
};

// 20 units for each 32 questions.
RunSpec sweep(uint32_t questions) {
  const auto parsed = valueOf(parseExperiment(
      R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: sweep}
spec:
  model: {path: none}
  task: {suite: recall, tasks: [niah]}
  policy: {totalBudget: 8}
  evaluation:
    budgets: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    schedules: [uniform]
    methods: [dense, s2anta-sys]
)",
      "test", {"spec.task.heldOutQuestions=" + std::to_string(questions), "spec.audit.share=0"}));
  return {parsed, specDigest(parsed), false, 1, {}};
}

class EvaluationFlow : public testing::Test {
 protected:
  void addAggregator() {
    clock_.add([this] {
      const auto store = openMemoryStore(server_);
      Aggregator aggregator(store.get(), run_,
                            {.holder = "a",
                             .wait_ms = 500,
                             .now = [this] { return clock_.now(); },
                             .unix_now = [this] { return clock_.now(); },
                             .rest = [this](uint64_t ms) { clock_.sleep(ms); }});
      while (working_ > 0) {
        const auto more = valueOf(aggregator.tick());
        if (!more) break;
        clock_.sleep(100);
      }
      ASSERT_TRUE(aggregator.tick());
      for (const auto& cell : aggregator.snapshot().cells) complete_ += cell.complete ? 1 : 0;
      refused_ = aggregator.snapshot().refused["invalid"];
    });
  }
  void addWorker(size_t number, uint64_t unit_ms) {
    ++working_;
    clock_.add([this, number, unit_ms] {
      BlinkingStore store(openMemoryStore(server_), &clock_, outage_);
      const WorkerIdentity identity = identityOf("w" + std::to_string(number));
      store.signAs(identity);
      EXPECT_TRUE(store.readSpec());
      SlowEngine engine(&clock_, unit_ms, &evaluated_);
      engine.score = score_;
      WorkerLoop loop(&store, &store, &engine, run_,
                      {.name = identity.name(),
                       .build = "test",
                       .jitter_seed = number,
                       .grace_ms = 100'000,
                       .now = [this] { return clock_.now(); },
                       .unix_now = [this] { return clock_.now(); },
                       .sleep = [this](uint64_t ms) { clock_.sleep(ms); }},
                      &draining_);
      ended_.push_back(loop.run());
      requests_ += store.requests;
      lost_ms_ += store.lost_ms;
      --working_;
    });
  }
  void begin(uint32_t questions) {
    run_ = sweep(questions);
    const auto store = openMemoryStore(server_);
    ASSERT_TRUE(store->createRun(run_));
    v1::ModelFacts facts;
    facts.set_layers(4);
    ASSERT_TRUE(store->agreeOnModel(facts));
    addAggregator();
  }
  void at(uint64_t ms, std::function<void()> what) {
    clock_.add([this, ms, what = std::move(what)] {
      clock_.sleep(ms - clock_.now());
      what();
    });
  }
  // Seconds until everything is recorded.
  double evaluate(uint32_t questions, const std::vector<uint64_t>& unit_ms) {
    begin(questions);
    for (size_t i = 0; i < unit_ms.size(); ++i) addWorker(i, unit_ms[i]);
    const uint64_t start = clock_.now();
    clock_.run();
    EXPECT_EQ(complete_, 20u);
    return static_cast<double>(clock_.now() - start) / 1000;
  }
  // How often a unit was evaluated, on the average.
  double effort() const {
    const int all = std::accumulate(evaluated_.begin(), evaluated_.end(), 0,
                                    [](int sum, const auto& unit) { return sum + unit.second; });
    return all / static_cast<double>(evaluated_.size());
  }
  uint64_t recorded() { return openMemoryStore(server_)->readEvaluations("", 1000)->size(); }

  Clockwork clock_;
  RunSpec run_;
  std::shared_ptr<MemoryServer> server_ =
      std::make_shared<MemoryServer>([this] { return clock_.now(); });
  std::map<std::string, int> evaluated_;
  Outage outage_;
  double score_ = 1;
  size_t working_ = 0, complete_ = 0;
  uint64_t refused_ = 0, requests_ = 0, lost_ms_ = 0;
  std::vector<Status> ended_;
  std::atomic<bool> draining_{false};
};

// Units of 10 s on `workers` machines, every second one half as fast and every third one a third.
struct Fleet {
  size_t workers;
  bool equal;
};
std::vector<uint64_t> unitTimes(const Fleet& fleet) {
  std::vector<uint64_t> times;
  for (size_t i = 0; i < fleet.workers; ++i)
    times.push_back(fleet.equal ? 10'000 : 10'000 * (1 + i % 3));
  return times;
}
// Seconds for 300 units if no worker ever waits.
double possible(const std::vector<uint64_t>& unit_ms) {
  double rate = 0;
  for (const uint64_t ms : unit_ms) rate += 1000.0 / static_cast<double>(ms);
  return 300 / rate;
}

struct Case {
  Fleet fleet;
  const char* name;
};
class EvaluationByFleets : public EvaluationFlow, public testing::WithParamInterface<Case> {};

TEST_P(EvaluationByFleets, EvaluateEachUnitOnceAndLoseLittleTime) {
  const auto times = unitTimes(GetParam().fleet);
  const double seconds = evaluate(480, times);
  EXPECT_EQ(effort(), 1);
  EXPECT_LT(seconds, 1.3 * possible(times));
}

INSTANTIATE_TEST_SUITE_P(Fleets, EvaluationByFleets,
                         testing::Values(Case{{8, true}, "EightEqual"},
                                         Case{{12, false}, "TwelveOfThreeSpeeds"},
                                         Case{{50, true}, "FiftyEqual"},
                                         Case{{50, false}, "FiftyOfThreeSpeeds"}),
                         [](const auto& info) { return info.param.name; });

TEST_F(EvaluationFlow, AStoreThatIsAwayForAMomentCostsNoWork) {
  outage_ = {clock_.now() + 898'000, 5'000};  // when a unit is finished
  const double seconds = evaluate(96, {30'000});
  EXPECT_EQ(effort(), 1);
  EXPECT_LT(seconds, 60 * 30 + 60);  // one claim more than without
}

// A unit of five minutes is nobody else's while its worker beats.
TEST_F(EvaluationFlow, AClaimLastsAsLongAsItsUnit) {
  evaluate(32, {300'000, 300'000, 1'000});
  EXPECT_EQ(effort(), 1);
}

// Each request waits in vain for 5 s, each beat for 300 ms.
TEST_F(EvaluationFlow, AStoreThatHangsHoldsNoDecodingUp) {
  outage_ = {clock_.now() + 5'000, 590'000, 5'000};
  evaluate(32, {600'000});
  EXPECT_EQ(effort(), 1);
  EXPECT_GT(lost_ms_, 0u);
  EXPECT_LT(lost_ms_, 590'000u * 2 / 100);
}

TEST_F(EvaluationFlow, DrainingItWaitsForTheStoreAsLongAsItsGraceAllows) {
  begin(32);
  outage_ = {clock_.now() + 29'000, 5'000};
  addWorker(0, 30'000);
  at(clock_.now() + 29'500, [this] { draining_ = true; });
  clock_.run();
  EXPECT_EQ(recorded(), 1u);
  EXPECT_TRUE(ended_.at(0));
}

TEST_F(EvaluationFlow, WhatTheStoreDoesNotTakeInTimeIsDroppedAndSaid) {
  begin(32);
  outage_ = {clock_.now() + 29'000, 3'600'000};
  addWorker(0, 30'000);
  at(clock_.now() + 29'500, [this] { draining_ = true; });
  const uint64_t start = clock_.now();
  clock_.run();
  EXPECT_EQ(recorded(), 0u);
  EXPECT_THAT(ended_.at(0), isError(ErrorCode::kUnavailable, HasSubstr("1 results are dropped")));
  EXPECT_GE(clock_.now() - start, 129'000u);
  EXPECT_LE(clock_.now() - start, 135'000u);
}

TEST_F(EvaluationFlow, AfterFiveEvaluationsInARowThatCannotBeAWorkerEnds) {
  begin(480);
  score_ = 2;
  for (size_t i = 0; i < 3; ++i) addWorker(i, 1'000);
  clock_.run();
  EXPECT_THAT(ended_, Each(isError(ErrorCode::kData, HasSubstr("scores that cannot be"))));
  EXPECT_EQ(refused_, 15u);
}

// Paused; then with nothing but another worker's claim to wait for.
TEST_F(EvaluationFlow, AWorkerWithoutWorkAsksLessThanOnceInTwoSeconds) {
  for (const bool paused : {true, false}) {
    run_ = sweep(32);
    server_ = std::make_shared<MemoryServer>([this] { return clock_.now(); });
    const auto store = openMemoryStore(server_);
    ASSERT_TRUE(store->createRun(run_));
    const uint64_t epoch = store->acquireLease("a", 3'600'000)->epoch;
    v1::EvaluationUnit unit;
    unit.set_unit_id("v000000/c0000/dense/dense/0");
    ASSERT_TRUE(Leadership(*store, epoch).planUnits({unit}));
    if (!paused) {
      ASSERT_EQ(store->claimUnits({.holder = "other", .lease_ms = 3'600'000})->size(), 1u);
    }
    Control control = **store->readControl();
    if (paused) control.desired = Desired::kPaused;
    ASSERT_TRUE(*store->changeControl(control));
    draining_ = false;
    requests_ = 0;
    addWorker(0, 1'000);
    at(clock_.now() + 600'000, [this] { draining_ = true; });
    clock_.run();
    EXPECT_GT(requests_, 60u);  // it looks now and then
    EXPECT_LT(requests_, 300u);
  }
}

}  // namespace
}  // namespace allot
