// Audits of a whole run: real WorkerLoops, Aggregator and MemoryStore, with an engine that makes
// scores out of numbers. One of the workers may lie.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <random>

#include "aggregator/learner/aggregator.h"
#include "core/learning/policy.h"
#include "store/memory/memory_store.h"
#include "tests/identity.h"
#include "tests/tiny_experiment.h"
#include "worker/loop/worker_loop.h"

namespace allot {
namespace {

// 0 or 1; the truth about a question of an episode or of a unit.
double truth(uint64_t name, uint64_t question) {
  return static_cast<double>(std::mt19937_64(name * 1'000'003 + question)() % 2);
}
double truth(const v1::EvaluationUnit& unit, uint32_t question) {
  return truth(std::hash<std::string>()(unit.unit_id()), question);
}

// The answers of a worker that lies from its `first`th answer on, in one of `of` answers.
struct Lie {
  uint64_t first = UINT64_MAX, of = 1;
  std::string arithmetic = "cpu";
  bool of_tasks = false;  // scores are true, and tasks of evaluations are not
};

class NumberEngine final : public EpisodeEngine {
 public:
  NumberEngine(v1::Spec spec, Lie lie) : spec_(std::move(spec)), lie_(std::move(lie)) {}

  uint64_t answers = 0;

  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& policy_sha256,
                                                 const std::vector<uint64_t>& tickets) override {
    std::vector<v1::EpisodeResult> results;
    for (const uint64_t ticket : tickets) {
      const auto [schedule, log_probability] = scheduleOf(spec_, policy, ticket);
      v1::EpisodeResult& result = results.emplace_back();
      result.set_ticket(ticket);
      result.set_policy_version(policy.version());
      result.set_policy_sha256(policy_sha256);
      *result.mutable_schedule() = {schedule.begin(), schedule.end()};
      result.set_behaviour_log_prob(log_probability);
      double sum = 0;
      for (const uint32_t question : questionsOf(spec_, policy, ticket)) {
        v1::QuestionScore& score = *result.add_scores();
        score.set_question(question);
        const double right = truth(ticket, question);
        score.set_score(lie_.of_tasks ? right : told(right));
        score.set_tokens(3);
        sum += score.score();
      }
      result.set_reward(sum / result.scores_size());
      result.set_arithmetic(lie_.arithmetic);
    }
    return results;
  }
  Result<std::vector<v1::EpisodeResult>> answerUnder(
      const std::vector<Episode>& episodes) override {
    std::vector<v1::EpisodeResult> results;
    for (const Episode& episode : episodes) {
      v1::EpisodeResult& result = results.emplace_back();
      for (uint32_t i = episode.first; i < episode.first + episode.count; ++i) {
        result.add_scores()->set_score(truth(episode.ticket, episode.questions[i]));
      }
    }
    return results;
  }
  // An audit asks for a part of a chunk, about which nobody lies here.
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    const bool whole = unit.question_count() > 4;
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      v1::QuestionScore& score = *result.add_scores();
      score.set_question(unit.first_question() + i);
      const double right = truth(unit, score.question());
      score.set_score(whole && !lie_.of_tasks ? told(right) : right);
      score.set_task(score.question() % 2);
      if (whole && lie_.of_tasks) score.set_task(told(score.task()) > 0 ? 1 : 0);
    }
    result.set_arithmetic(lie_.arithmetic);
    return result;
  }
  std::vector<uint32_t> warmChunks() const override { return {}; }
  std::string arithmetic() const override { return lie_.arithmetic; }

 private:
  double told(double right) {
    const bool lies = answers >= lie_.first && answers % lie_.of == 0;
    ++answers;
    return lies ? 1 - right : right;
  }

  const v1::Spec spec_;
  const Lie lie_;
};

std::string nameOf(size_t worker) { return identityOf("w" + std::to_string(worker)).name(); }

class AuditFlow {
 public:
  AuditFlow(uint64_t seed, uint32_t updates, const std::vector<Lie>& workers,
            bool synchronous = false, double share = 0.02)
      : seed_(seed) {
    const v1::Experiment experiment = tinyExperiment(
        {"spec.update.episodesPerUpdate=4", "spec.update.maxUpdates=" + std::to_string(updates),
         "spec.evaluation={everyUpdates: 0, budgets: [8], schedules: [uniform, learned], methods: "
         "[s2anta-sys]}",
         "spec.task.heldOutQuestions=64", "spec.task.tasks=[niah, multi]",
         "spec.audit.share=" + std::to_string(share), "spec.seed=" + std::to_string(seed)});
    run_ = {experiment, specDigest(experiment), synchronous, 1, {}};
    EXPECT_TRUE(eye_->createRun(run_));
    v1::ModelFacts facts;
    facts.set_layers(4);
    EXPECT_TRUE(eye_->agreeOnModel(facts));
    for (const Lie& lie : workers) addWorker(lie);
    begin();
  }
  void addWorker(const Lie& lie) {
    const std::string name = nameOf(workers_.size());
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.store = openMemoryStore(server_);
    worker.store->signAs(identityOf("w" + std::to_string(workers_.size() - 1)));
    EXPECT_TRUE(worker.store->readSpec());
    worker.engine = std::make_unique<NumberEngine>(run_.experiment.spec(), lie);
    worker.loop = std::make_unique<WorkerLoop>(worker.store.get(), worker.store.get(),
                                               worker.engine.get(), run_,
                                               WorkerOptions{.name = name,
                                                             .build = "test",
                                                             .now = [this] { return now_; },
                                                             .unix_now = [this] { return now_; },
                                                             .sleep = [](uint64_t) {}},
                                               &draining_);
  }
  // A new aggregator's process.
  void begin() {
    if (aggregator_) {
      EXPECT_TRUE(eye_->releaseLease("a" + std::to_string(born_)));
    }
    aggregator_store_ = openMemoryStore(server_);
    aggregator_ =
        std::make_unique<Aggregator>(aggregator_store_.get(), run_,
                                     AggregatorOptions{.holder = "a" + std::to_string(++born_),
                                                       .audit_seed = 1'000'000 * born_ + seed_,
                                                       .now = [this] { return now_; },
                                                       .unix_now = [this] { return now_; }});
  }
  // Each worker does one piece of work. Returns false once the run has ended.
  bool round() {
    now_ += 1'000;
    for (auto& worker : workers_) {
      if (worker->ended) continue;
      const auto rest = worker->loop->step();
      if (!rest) worker->error = rest.error().message;
      worker->ended = !rest || !*rest;
    }
    if (beforeTick) beforeTick();
    return valueOf(aggregator_->tick());
  }
  // The worker does no more.
  void stop(size_t worker) { workers_[worker]->ended = true; }
  std::unique_ptr<MemoryStore> client() { return openMemoryStore(server_); }
  std::function<void()> beforeTick;
  bool finish(int rounds = 3'000) {
    for (int i = 0; i < rounds; ++i) {
      if (!round()) return true;
    }
    return false;
  }
  v1::AggregatorStatus status() { return valueOf(valueOf(eye_->readStatus())); }
  std::vector<std::string> liars() {
    std::vector<std::string> names;
    const v1::AggregatorStatus now = status();
    for (const auto& worker : now.audits().workers()) {
      if (!worker.lies().empty()) names.push_back(worker.worker());
    }
    return names;
  }
  uint64_t answers(size_t worker) const { return workers_[worker]->engine->answers; }
  const std::string& errorOf(size_t worker) const { return workers_[worker]->error; }
  Store& eye() { return *eye_; }
  const RunSpec& run() const { return run_; }

 private:
  struct Worker {
    std::unique_ptr<MemoryStore> store;
    std::unique_ptr<NumberEngine> engine;
    std::unique_ptr<WorkerLoop> loop;
    bool ended = false;
    std::string error;
  };
  const uint64_t seed_;
  uint64_t now_ = 1'000'000;
  uint64_t born_ = 0;
  RunSpec run_;
  std::atomic<bool> draining_{false};
  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>([this] { return now_; });
  std::unique_ptr<MemoryStore> eye_ = openMemoryStore(server_);
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<MemoryStore> aggregator_store_;
  std::unique_ptr<Aggregator> aggregator_;
};

// Runs one liar among three honest workers; the answers that it gave before it was named, or
// nothing.
std::optional<uint64_t> foundAfter(uint64_t seed, const Lie& lie) {
  AuditFlow flow(seed, 100'000, {{}, lie, {}, {}});
  while (flow.answers(1) <= 2'000) {
    flow.round();
    const auto liars = flow.liars();
    if (liars.empty()) continue;
    EXPECT_THAT(liars, ElementsAre(nameOf(1))) << seed;
    return flow.answers(1);
  }
  return std::nullopt;
}

// How many of 100 liars are found within so many of their answers.
int foundOf100(const Lie& lie, uint64_t within, const char* what) {
  std::vector<uint64_t> after;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    after.push_back(foundAfter(seed, lie).value_or(UINT64_MAX));
  }
  std::sort(after.begin(), after.end());
  const auto found = static_cast<int>(
      std::count_if(after.begin(), after.end(), [&](auto n) { return n <= within; }));
  std::printf("%s: %d of 100 found within %d answers; median %d, 95th %d\n", what, found,
              static_cast<int>(within), static_cast<int>(after[50]), static_cast<int>(after[94]));
  return found;
}

TEST(AuditFlow, ALiarAmongThreeHonestWorkersIsFound) {
  EXPECT_GE(foundOf100({.first = 0}, 200, "always"), 95);
  // Beside the first answers one in fifty is audited: 0.98^150 of these liars are not found in
  // time.
  EXPECT_GE(foundOf100({.first = 50}, 200, "after 50 honest answers"), 85);
  EXPECT_GE(foundOf100({.first = 0, .of = 2}, 200, "one in two"), 85);
}

TEST(AuditFlow, NoHonestWorkerIsNamed) {
  for (uint64_t seed = 0; seed < 1'000; ++seed) {
    AuditFlow flow(seed, 3, {{}, {}, {}}, seed % 2 == 0, 0.3);
    ASSERT_TRUE(flow.finish()) << seed << ": " << flow.status().waiting();
    ASSERT_THAT(flow.liars(), IsEmpty()) << seed;
    ASSERT_EQ(flow.status().audits().differing(), 0u) << seed;
    ASSERT_GT(flow.status().audits().audited(), 0u) << seed;
    ASSERT_EQ(flow.status().audits().open(), 0u) << seed;
  }
}

TEST(AuditFlow, ASynchronousRunEndsInTheSameBits) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::set<std::string> ends;
    for (const double share : {0.0, 0.5}) {
      // A liar is found by its first answers, before any of its results counts.
      for (const Lie& lie : {Lie{}, Lie{.first = 0}}) {
        if (share == 0 && lie.first == 0) continue;
        AuditFlow flow(seed, 5, {{}, lie, {}, {}}, true, share);
        ASSERT_TRUE(flow.finish()) << flow.status().waiting();
        ends.insert(valueOf(valueOf(flow.eye().readPolicy())).sha256);
        EXPECT_EQ(flow.liars().size(), lie.first == 0 ? 1u : 0u);
      }
    }
    EXPECT_THAT(ends, SizeIs(1)) << seed;
  }
}

// The liar's evaluations that were accepted are refused and made again by others.
TEST(AuditFlow, WhatALiarHasEvaluatedIsEvaluatedAgain) {
  int named = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    AuditFlow flow(seed, 40, {{}, {.first = 40}, {}, {}}, false, 0.2);
    ASSERT_TRUE(flow.finish()) << flow.status().waiting();
    if (flow.liars().empty()) continue;
    ++named;
    EXPECT_THAT(flow.errorOf(1), HasSubstr("refuses the results of this worker (its scores of"));
    EXPECT_THAT(flow.status().audits().summary(),
                HasSubstr("worker " + nameOf(1) + " lies: its scores of"));
    const auto evaluations = valueOf(flow.eye().readEvaluations("", 1'000));
    EXPECT_FALSE(evaluations.empty());
    for (const Evaluation& evaluation : evaluations) {
      EXPECT_TRUE(evaluation.accepted);
      EXPECT_NE(evaluation.result.worker(), nameOf(1));
      for (const v1::QuestionScore& score : evaluation.result.scores()) {
        ASSERT_EQ(score.score(), truth(evaluation.result.unit(), score.question()));
      }
    }
    // What counts already is told, and stays: updates are not taken back.
    uint64_t counted = 0, first = 0, last = 0;
    for (const auto& record : valueOf(flow.eye().readHistory(0, 1'000))) {
      for (const auto& result : record.results()) {
        if (result.worker() != nameOf(1)) continue;
        ++counted;
        last = record.version();
        if (first == 0) first = last;
      }
    }
    const v1::AggregatorStatus now = flow.status();
    for (const v1::AuditedWorker& worker : now.audits().workers()) {
      if (worker.worker() != nameOf(1)) continue;
      EXPECT_EQ(worker.episodes(), counted);
      EXPECT_EQ(worker.first_update(), first);
      EXPECT_EQ(worker.last_update(), last);
    }
    // A successor knows it.
    flow.begin();
    ASSERT_TRUE(flow.finish(5));
    EXPECT_THAT(flow.liars(), ElementsAre(nameOf(1)));
  }
  EXPECT_GE(named, 18);
}

// A liar that was alone, and that nobody audits: the first evaluation that contradicts its own
// does.
TEST(AuditFlow, EvaluationsThatNameOtherTasksAreRefusedAndAudited) {
  for (const bool stays : {true, false}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      AuditFlow flow(seed, 20, {{.first = 0, .of_tasks = true}}, false, 1e-6);
      const auto accepted = [&] { return valueOf(flow.eye().readEvaluations("", 1'000)); };
      while (accepted().size() < 2) ASSERT_TRUE(flow.round());
      EXPECT_EQ(accepted()[0].result.scores(0).task(), 1u);
      if (!stays) flow.stop(0);
      for (int i = 0; i < 3; ++i) flow.addWorker({});
      ASSERT_TRUE(flow.finish()) << seed << ": " << flow.status().waiting();
      EXPECT_THAT(flow.liars(), ElementsAre(nameOf(0))) << seed;
      EXPECT_THAT(flow.status().audits().summary(),
                  HasSubstr(" lies: its tasks of evaluation unit"));
      std::set<uint32_t> questions;
      for (const Evaluation& evaluation : accepted()) {
        EXPECT_NE(evaluation.result.worker(), nameOf(0));
        for (const v1::QuestionScore& score : evaluation.result.scores()) {
          questions.insert(score.question());
          ASSERT_EQ(score.task(), score.question() % 2) << seed;
        }
      }
      EXPECT_THAT(questions, SizeIs(64));
    }
  }
}

TEST(AuditFlow, TwoThatDisagreeWaitForAThirdAndSayWhy) {
  AuditFlow flow(1, 5, {{}, {.first = 0}});
  ASSERT_FALSE(flow.finish(100));
  EXPECT_THAT(flow.status().waiting(),
              AllOf(HasSubstr(nameOf(1)), HasSubstr(nameOf(0)), HasSubstr(" disagree on"),
                    HasSubstr("start one, or set spec.audit.share to 0")));
  EXPECT_EQ(valueOf(valueOf(flow.eye().readPolicy())).snapshot.version(), 0u);
  for (const Evaluation& evaluation : valueOf(flow.eye().readEvaluations("", 100))) {
    EXPECT_FALSE(evaluation.accepted && evaluation.result.worker() == nameOf(1));
  }
  flow.addWorker({});
  ASSERT_TRUE(flow.finish());
  EXPECT_THAT(flow.liars(), ElementsAre(nameOf(1)));
}

// Others can delete the beats of all workers, and write beats under any name.
TEST(AuditFlow, BeatsOfStrangersHideNoLiar) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    AuditFlow flow(seed, 1'000, {{}, {.first = 0}, {}, {}});
    const auto stranger = flow.client();
    stranger->signAs(identityOf("stranger"));
    ASSERT_TRUE(stranger->readSpec());
    flow.beforeTick = [&] {
      v1::WorkerBeat beat;
      for (size_t honest : {0, 2, 3}) {
        // Each of these would take it out of the live ones.
        ASSERT_TRUE(stranger->leave(nameOf(honest)));
        beat.set_worker(nameOf(honest));
        beat.set_state("draining");
        beat.set_seen_unix_ms(UINT64_MAX);
        ASSERT_TRUE(stranger->beat({.beat = beat, .ttl_ms = 60'000}));
      }
      beat.set_worker("invented");
      beat.set_state("idle");
      ASSERT_TRUE(stranger->beat({.beat = beat, .ttl_ms = 60'000}));
      EXPECT_FALSE(valueOf(stranger->readAudits("invented")));
    };
    for (int i = 0; i < 200 && (i < 2 || flow.liars().empty()); ++i) ASSERT_TRUE(flow.round());
    EXPECT_THAT(flow.liars(), ElementsAre(nameOf(1))) << seed;
  }
}

// Two of an arithmetic that nobody else has disagree: others do their work.
TEST(AuditFlow, ADisputeThatNobodyDecidesDoesNotStopTheRun) {
  uint64_t undecided = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    AuditFlow flow(seed, 5, {{}, {.first = 0, .arithmetic = "mine"}, {.arithmetic = "mine"}, {}},
                   seed % 2 == 0);
    ASSERT_TRUE(flow.finish()) << flow.status().waiting();
    undecided += flow.status().audits().undecided();
    EXPECT_THAT(flow.liars(), Not(Contains(AnyOf(nameOf(0), nameOf(2), nameOf(3))))) << seed;
  }
  EXPECT_GT(undecided, 0u);
}

TEST(AuditFlow, ALoneWorkerIsNotAuditedAndNotHeld) {
  AuditFlow flow(1, 5, {{}});
  ASSERT_TRUE(flow.finish());
  EXPECT_EQ(flow.status().audits().summary(), "not audited: one worker");
}

}  // namespace
}  // namespace allot
