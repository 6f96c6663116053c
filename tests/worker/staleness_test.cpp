// Does correcting for stale results pay? The real model learns the recall experiment from results
// that are all 30 updates old, once with truncated importance weights and once without. It takes
// the whole length: for the first fifty updates uncorrected results are the faster teacher, and
// where they lead to shows only later.
//
// By hand for other sizes: ALLOT_STALE_LAG, _UPDATES, _EPISODES (an update), _SEEDS.
#include <cstdio>
#include <cstdlib>

#include "aggregator/learner/aggregator.h"
#include "core/evaluation/score_statistics.h"
#include "core/learning/schedule.h"
#include "store/memory/memory_store.h"
#include "tests/identity.h"
#include "tests/worker/engine_fixture.h"

namespace allot {
namespace {

uint64_t setting(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

struct Learned {
  double correct = 0, questions = 0;  // held out, under the learned schedule
  double late_reward = 0;             // mean over the last quarter of the updates
  double least_ess = 1;
  SampleSchedule schedule;
};

class Staleness : public testing::Test {
 protected:
  static v1::Experiment staleExperiment(const std::string& mode, uint64_t seed, uint64_t episodes) {
    return experiment({"spec.seed=" + std::to_string(seed), "spec.staleness.mode=" + mode,
                       "spec.update.episodesPerUpdate=" + std::to_string(episodes),
                       "spec.task.trainQuestions=128", "spec.task.heldOutQuestions=240",
                       "spec.evaluation.everyUpdates=0", "spec.evaluation.methods=[dense]"});
  }

  // Learns for so many updates; each consumes episodes of the policy `lag` updates before it.
  static Learned learn(Engine* engine, const v1::Experiment& experiment, uint64_t lag,
                       uint64_t updates) {
    uint64_t now = 1000;
    const auto clock = [&] { return now; };
    auto server = std::make_shared<MemoryServer>(clock);
    auto worker = openMemoryStore(server), store = openMemoryStore(server);
    const RunSpec run{experiment, specDigest(experiment), false, 1, {}};
    worker->signAs(identityOf("w"));
    EXPECT_TRUE(worker->createRun(run));
    EXPECT_TRUE(worker->agreeOnModel(engine->facts()));
    Aggregator aggregator(store.get(), run,
                          {.holder = "a", .page = "", .now = clock, .unix_now = clock});
    EXPECT_TRUE(aggregator.tick());
    std::vector<PublishedPolicy> policies;
    for (uint64_t version = 0; version < updates; ++version) {
      policies.push_back(**worker->readPolicy());
      const PublishedPolicy& old = policies[version > lag ? version - lag : 0];
      const auto tickets =
          *worker->takeTickets({experiment.spec().update().episodes_per_update(), UINT64_MAX});
      auto results = valueOf(engine->rollOut(old.snapshot, old.sha256, tickets));
      for (v1::EpisodeResult& result : results) {
        result.set_result_id("w-" + std::to_string(result.ticket()));
        result.set_worker(identityOf("w").name());
        EXPECT_TRUE(worker->pushResult(result, 1000));
      }
      EXPECT_THAT(aggregator.tick(), succeeds());
    }
    const RunSnapshot snapshot = aggregator.snapshot();
    EXPECT_EQ(snapshot.state.policy().version(), updates);
    return grade(engine, experiment, snapshot);
  }

  static Learned grade(Engine* engine, const v1::Experiment& experiment,
                       const RunSnapshot& snapshot) {
    Learned learned;
    const auto& logits = snapshot.state.policy().logits();
    learned.schedule = learnedSchedule(softmax({logits.begin(), logits.end()}), 8, 0, 8);
    const size_t quarter = std::max<size_t>(1, snapshot.history.size() / 4);
    for (size_t i = 0; i < snapshot.history.size(); ++i) {
      const auto& record = snapshot.history[i];
      learned.least_ess = std::min(learned.least_ess, record.effective_sample_size_ratio());
      if (i + quarter >= snapshot.history.size()) {
        learned.late_reward += record.mean_reward() / static_cast<double>(quarter);
      }
    }
    v1::EvaluationUnit unit;
    unit.set_unit_id("u");
    unit.set_method(experiment.spec().attention().decode());
    unit.set_total_budget(8);
    *unit.mutable_schedule() = {learned.schedule.begin(), learned.schedule.end()};
    unit.set_question_count(40);
    for (uint32_t first = 0; first < 240; first += 40) {
      unit.set_first_question(first);
      const auto result = valueOf(engine->evaluate(unit));
      learned.correct += sumOfScores(result);
      learned.questions += result.scores_size();
    }
    return learned;
  }
};

TEST_F(Staleness, CorrectingStaleResultsDoesNotFallBehindTakingThemAsFresh) {
  const uint64_t lag = setting("ALLOT_STALE_LAG", 30);
  const uint64_t updates = setting("ALLOT_STALE_UPDATES", 150);
  const uint64_t episodes = setting("ALLOT_STALE_EPISODES", 10);  // an update
  const uint64_t seeds = setting("ALLOT_STALE_SEEDS", 1);
  double difference = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::map<std::string, Learned> by_mode;
    auto engine = load(staleExperiment("none", seed, episodes), 4096);
    for (const char* mode : {"none", "truncated-is"}) {
      const Learned& learned = by_mode[mode] =
          learn(engine.get(), staleExperiment(mode, seed, episodes), lag, updates);
      const Interval interval = wilson95(learned.correct, learned.questions);
      std::printf(
          "seed %llu, lag %llu, %llu updates, %-12s held-out %.3f [%.3f, %.3f], last quarter's "
          "reward %.3f, least ESS %.2f, schedule",
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(lag),
          static_cast<unsigned long long>(updates), mode, learned.correct / learned.questions,
          interval.low, interval.high, learned.late_reward, learned.least_ess);
      for (const uint32_t samples : learned.schedule) std::printf(" %u", samples);
      std::printf("\n");
      std::fflush(stdout);
    }
    difference += (by_mode["truncated-is"].correct - by_mode["none"].correct) / 240;
    // The weights must have done something, else this compares equals.
    EXPECT_LT(by_mode["truncated-is"].least_ess, 0.9);
    EXPECT_EQ(by_mode["none"].least_ess, 1);
  }
  // Two standard deviations of a difference of two accuracies around 0.6 over 240 questions.
  EXPECT_GT(difference / static_cast<double>(seeds), -0.09);
}

}  // namespace
}  // namespace allot
