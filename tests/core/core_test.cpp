// Schedules, the policy gradient, statistics, identifiers: pure functions against closed forms.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/digest.h"
#include "core/evaluation/score_statistics.h"
#include "core/learning/learning_checks.h"
#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/ulid.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

uint64_t total(const SampleSchedule& schedule) {
  return std::accumulate(schedule.begin(), schedule.end(), uint64_t{0});
}

v1::Experiment experiment(uint32_t budget = 8, uint32_t min_per_layer = 0) {
  v1::Experiment experiment;
  auto* spec = experiment.mutable_spec();
  spec->set_seed(1);
  spec->mutable_policy()->set_total_budget(budget);
  spec->mutable_policy()->set_min_per_layer(min_per_layer);
  spec->mutable_rollout()->set_questions_per_episode(4);
  spec->mutable_task()->set_train_questions(64);
  spec->mutable_update()->set_episodes_per_update(10);
  spec->mutable_update()->set_optimizer("adam");
  spec->mutable_update()->set_learning_rate(0.05);
  spec->mutable_update()->set_baseline("leave-one-out");
  spec->mutable_staleness()->set_mode("truncated-is");
  spec->mutable_staleness()->set_rho_bar(1);
  return experiment;
}

v1::EpisodeResult episode(const v1::Experiment& e, const v1::PolicySnapshot& policy,
                          uint64_t ticket, double reward) {
  v1::EpisodeResult result = episodeOf(e.spec(), policy, ticket);
  for (v1::QuestionScore& score : *result.mutable_scores()) score.set_score(reward);
  result.set_reward(reward);
  return result;
}

TEST(Schedule, DrawsSumToTheBudgetAndKeepTheMinimum) {
  const std::vector<double> probabilities{0.5, 0.3, 0.15, 0.05};
  std::vector<double> means(4);
  constexpr int kTickets = 20000;
  for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
    const auto schedule = drawSchedule(probabilities, 12, 1, {42}, ticket);
    ASSERT_EQ(total(schedule), 12u);
    for (int l = 0; l < 4; ++l) {
      ASSERT_GE(schedule[l], 1u);
      means[l] += static_cast<double>(schedule[l]) / kTickets;
    }
  }
  // Multinomial of 8 draws: sd of a mean at most sqrt(8 / 4 / 20000) = 0.01; 5 sd, false alarm
  // 2e-6.
  for (int l = 0; l < 4; ++l) EXPECT_NEAR(means[l], 1 + 8 * probabilities[l], 0.05);
  EXPECT_EQ(drawSchedule(probabilities, 12, 1, {42}, 7),
            drawSchedule(probabilities, 12, 1, {42}, 7));
}

TEST(Schedule, DeterministicOnes) {
  EXPECT_EQ(uniformSchedule(8, 8), SampleSchedule(8, 1));
  EXPECT_EQ(uniformSchedule(13, 8), (SampleSchedule{1, 2, 1, 2, 2, 1, 2, 2}));
  EXPECT_EQ(learnedSchedule({0.375, 0.25, 0.375}, 8, 0, 8), (SampleSchedule{3, 2, 3}));
  EXPECT_EQ(learnedSchedule({0.4, 0.3, 0.3}, 5, 0, 5), (SampleSchedule{2, 2, 1}));
  EXPECT_EQ(learnedSchedule({1, 0, 0}, 8, 2, 8), (SampleSchedule{4, 2, 2}));
  EXPECT_EQ(learnedSchedule({0.49, 0.02, 0.49}, 4, 0, 4), (SampleSchedule{2, 0, 2}));
  EXPECT_EQ(learnedSchedule({0.49, 0.02, 0.49}, 64, 0, 4), (SampleSchedule{32, 0, 32}));
  EXPECT_EQ(oneHotSchedule(256, 4, 2), (SampleSchedule{64, 64, 1, 64}));
}

TEST(Schedule, LogProbabilityIsTheMultinomialOne) {
  const std::vector<double> logits{0.1, -0.7, 2.0};
  const auto p = softmax(logits);
  EXPECT_NEAR(logProbability({2, 1, 4}, logits, 0),
              2 * std::log(p[0]) + std::log(p[1]) + 4 * std::log(p[2]), 1e-12);
  EXPECT_NEAR(logProbability({2, 1, 4}, logits, 1), std::log(p[0]) + 3 * std::log(p[2]), 1e-12);
  // A layer that the policy has given up and nothing was drawn for does not spoil the sum.
  EXPECT_EQ(logProbability({3, 0}, {0, -2000}, 0), 0);
}

// E[(R - b) (n/B - pi)] is the gradient of E[R] / B in the logits. With R = sum_l c_l n_l / B the
// mean reward is sum_l c_l pi_l, whose gradient is pi_l (c_l - sum_k c_k pi_k); the estimate's mean
// over many batches must be that over B.
TEST(PolicyGradient, EstimatesTheGradientOfTheMeanReward) {
  auto e = experiment();
  e.mutable_spec()->mutable_update()->set_optimizer("sgd");
  e.mutable_spec()->mutable_update()->set_learning_rate(1);
  auto state = initialState(e, 3);
  state.mutable_policy()->set_logits(0, 0.4);
  state.mutable_policy()->set_logits(2, -0.5);
  const std::vector<double> logits{0.4, 0, -0.5}, worth{0.9, 0.1, 0.4};
  const auto pi = softmax(logits);
  std::vector<double> mean(3), squares(3);
  constexpr int kBatches = 4000;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<v1::EpisodeResult> results;
    for (int i = 0; i < 10; ++i) {
      auto result = episode(e, state.policy(), batch * 10 + i, 0);
      double reward = 0;
      for (int l = 0; l < 3; ++l) reward += worth[l] * result.schedule(l) / 8.0;
      result.set_reward(reward);
      results.push_back(result);
    }
    const auto outcome = applyUpdate(e, state, results);
    for (int l = 0; l < 3; ++l) {
      const double g = outcome.state.policy().logits(l) - logits[l];
      mean[l] += g / kBatches;
      squares[l] += g * g / kBatches;
    }
  }
  double average = 0;
  for (int l = 0; l < 3; ++l) average += worth[l] * pi[l];
  for (int l = 0; l < 3; ++l) {
    const double expected = pi[l] * (worth[l] - average) / 8;
    const double sd = std::sqrt((squares[l] - mean[l] * mean[l]) / kBatches);
    EXPECT_NEAR(mean[l], expected, 5 * sd);  // false alarm 2e-6 in all
    EXPECT_GT(std::abs(expected), 10 * sd);  // the test can tell it from nothing
  }
}

TEST(PolicyGradient, IsAPureFunctionAndReportsWhatItDid) {
  const auto e = experiment();
  const auto state = initialState(e, 8);
  std::vector<v1::EpisodeResult> results;
  for (int i = 0; i < 10; ++i)
    results.push_back(episode(e, state.policy(), i, i % 2 ? 0.75 : 0.25));
  const auto a = applyUpdate(e, state, results);
  const auto b = applyUpdate(e, state, results);
  EXPECT_EQ(a.state.SerializeAsString(), b.state.SerializeAsString());
  EXPECT_EQ(a.record.policy_sha256(), policyDigest(a.state.policy()));
  EXPECT_EQ(a.state.policy().version(), 1u);
  EXPECT_EQ(a.state.episodes(), 10u);
  EXPECT_DOUBLE_EQ(a.record.mean_reward(), 0.5);
  EXPECT_DOUBLE_EQ(a.record.effective_sample_size_ratio(), 1);
  EXPECT_EQ(a.record.mean_lag_updates(), 0);
  EXPECT_GT(a.record.step_kl_nats(), 0);
}

TEST(PolicyGradient, TruncatesImportanceWeights) {
  auto e = experiment();
  auto state = initialState(e, 4);
  const auto old_policy = state.policy();
  std::vector<v1::EpisodeResult> results;
  for (int i = 0; i < 20; ++i) results.push_back(episode(e, old_policy, i, i % 2));
  state.mutable_policy()->set_version(3);
  state.mutable_policy()->set_logits(0, 2.0);
  const auto outcome = applyUpdate(e, state, results);
  size_t above = 0;
  for (int i = 0; i < 20; ++i) {
    const SampleSchedule n(results[i].schedule().begin(), results[i].schedule().end());
    const double ratio =
        std::exp(logProbability(n, {2, 0, 0, 0}, 0) - logProbability(n, {0, 0, 0, 0}, 0));
    EXPECT_DOUBLE_EQ(outcome.record.weights(i), std::min(1.0, ratio));
    above += ratio > 1;
  }
  EXPECT_GT(above, 0u);
  EXPECT_LT(above, 20u);
  EXPECT_DOUBLE_EQ(outcome.record.mean_lag_updates(), 3);
  e.mutable_spec()->mutable_staleness()->set_mode("none");
  EXPECT_EQ(applyUpdate(e, state, results).record.weights(0), 1);
}

TEST(PolicyGradient, RefusesResultsThatCannotBe) {
  const auto e = experiment();
  const auto state = initialState(e, 8);
  const auto good = episode(e, state.policy(), 3, 0.5);
  ASSERT_TRUE(checkResult(e, state, good, &state.policy()));
  const auto refused = [&](auto change) -> std::string {
    auto bad = good;
    change(&bad);
    const Status checked = checkResult(e, state, bad, &state.policy());
    return checked ? "nothing" : checked.error().message;
  };
  const auto setScore = [](auto* r, double score) {  // and the reward that goes with it
    r->mutable_scores(1)->set_score(score);
    r->set_reward((0.5 * 3 + score) / 4);
  };
  EXPECT_EQ(refused([](auto*) {}), "nothing");
  EXPECT_THAT(refused([](auto* r) { r->set_policy_version(1); }), HasSubstr("published"));
  EXPECT_THAT(refused([](auto* r) { r->set_schedule(0, r->schedule(0) + 1); }),
              HasSubstr("total budget"));
  EXPECT_THAT(refused([](auto* r) {
                const auto full = std::find_if(r->schedule().begin(), r->schedule().end(),
                                               [](uint32_t samples) { return samples > 0; });
                r->set_schedule(static_cast<int>(full - r->schedule().begin()), *full - 1);
              }),
              HasSubstr("total budget"));
  EXPECT_THAT(refused([](auto* r) { r->add_schedule(0); }), HasSubstr("layers"));
  // Under equal logits another order has the same sum and log-probability.
  EXPECT_THAT(refused([](auto* r) {
                std::prev_permutation(r->mutable_schedule()->begin(), r->mutable_schedule()->end());
              }),
              HasSubstr("the schedule is not that of its ticket"));
  EXPECT_THAT(refused([&](auto* r) { setScore(r, 2); }), HasSubstr("a score is outside"));
  EXPECT_THAT(refused([&](auto* r) { setScore(r, -0.25); }), HasSubstr("a score is outside"));
  EXPECT_THAT(refused([&](auto* r) { setScore(r, NAN); }), HasSubstr("a score is outside"));
  EXPECT_THAT(refused([](auto* r) { r->mutable_scores(1)->set_other_score(NAN); }),
              HasSubstr("other score"));
  EXPECT_THAT(refused([](auto* r) { r->mutable_scores(1)->set_other_score(-0.5); }),
              HasSubstr("other score"));
  EXPECT_THAT(refused([](auto* r) { r->mutable_scores(1)->set_question(r->scores(0).question()); }),
              HasSubstr("a question is there twice"));
  EXPECT_THAT(refused([](auto* r) { r->mutable_scores(1)->set_question(64); }),
              HasSubstr("a question does not exist"));
  EXPECT_THAT(refused([](auto* r) { r->mutable_scores()->RemoveLast(); }), HasSubstr("3 scores"));
  for (const double reward : {0.9, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_THAT(refused([&](auto* r) { r->set_reward(reward); }), HasSubstr("mean score"));
  }
  EXPECT_THAT(refused([](auto* r) { r->set_behaviour_log_prob(-1); }),
              HasSubstr("not that of the policy"));
  EXPECT_THAT(refused([](auto* r) { r->set_behaviour_log_prob(NAN); }), HasSubstr("finite"));
  EXPECT_THAT(refused([](auto* r) { r->set_behaviour_log_prob(1); }), HasSubstr("finite"));
  EXPECT_THAT(refused([](auto* r) { r->set_result_id(""); }), HasSubstr("result id"));
  EXPECT_THAT(refused([](auto* r) { r->set_seconds(-1); }), HasSubstr("duration"));
  EXPECT_THAT(refused([](auto* r) { r->set_seconds(NAN); }), HasSubstr("duration"));
  EXPECT_THAT(refused([](auto* r) { r->set_ticket(4); }), HasSubstr("not those of its ticket"));
  EXPECT_THAT(refused([](auto* r) { r->set_policy_sha256("another"); }), HasSubstr("digest"));
  const auto with_minimum = experiment(8, 1);
  EXPECT_THAT(checkResult(with_minimum, state, good, nullptr).error().message,
              HasSubstr("minPerLayer"));
}

TEST(PolicyGradient, DropsWhatIsOlderThanMaxLag) {
  auto e = experiment();
  e.mutable_spec()->mutable_staleness()->set_max_lag(4);
  v1::EpisodeResult result;
  result.set_policy_version(10);
  EXPECT_FALSE(isStale(e, 15, result));  // another mode
  e.mutable_spec()->mutable_staleness()->set_mode("drop");
  EXPECT_FALSE(isStale(e, 10, result));
  EXPECT_FALSE(isStale(e, 14, result));
  EXPECT_TRUE(isStale(e, 15, result));
}

TEST(PolicyGradient, AForkBeginsWithPolicyAndOptimiserOfItsOrigin) {
  const auto e = experiment();
  auto state = initialState(e, 3);
  for (uint64_t ticket = 0; ticket < 40; ticket += 10) {
    std::vector<v1::EpisodeResult> results;
    for (uint64_t i = 0; i < 10; ++i) {
      results.push_back(episode(e, state.policy(), ticket + i, (ticket + i) % 3 * 0.5));
    }
    state = applyUpdate(e, state, results).state;
  }
  const v1::Origin origin = originOf(e, "run", state);
  EXPECT_EQ(origin.run_id(), "run");
  EXPECT_EQ(origin.version(), 4u);
  EXPECT_EQ(origin.policy_sha256(), policyDigest(state.policy()));
  const auto first = initialState(e, 3, &origin);
  v1::AggregatorState expected = state;  // but for what is counted from here
  expected.mutable_policy()->set_version(0);
  expected.set_episodes(0);
  expected.set_worker_seconds(0);
  for (auto& count : *expected.mutable_lag_counts()) count = 0;
  EXPECT_EQ(first.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(first.optimizer_steps(), 4u);
  EXPECT_TRUE(first.has_moving_baseline());
}

TEST(Questions, AnEpochAsksEachOnceAndNobodyAsksTwice) {
  for (uint32_t available : {64u, 67u}) {
    std::map<uint32_t, int> asked;
    for (uint64_t ticket = 0; ticket < 16; ++ticket) {
      const auto questions = episodeQuestions({9}, ticket, 4, available);
      EXPECT_EQ(std::set<uint32_t>(questions.begin(), questions.end()).size(), 4u);
      for (uint32_t q : questions) {
        ASSERT_LT(q, available);
        ++asked[q];
      }
    }
    EXPECT_EQ(asked.size(), 64u);
    for (const auto& [question, times] : asked) EXPECT_EQ(times, 1);
  }
  EXPECT_NE(episodeQuestions({9}, 0, 4, 64), episodeQuestions({9}, 16, 4, 64));
}

TEST(Statistics, WilsonIntervals) {
  // By hand for 40 of 80: z^2/n = 0.048018, half width 1.959964 sqrt(0.003125 + 0.00015006)
  // / 1.048018.
  const Interval half = wilson95(40, 80);
  EXPECT_NEAR(half.low, 0.392974, 1e-5);
  EXPECT_NEAR(half.high, 0.607026, 1e-5);
  EXPECT_EQ(wilson95(0, 10).low, 0);
  EXPECT_NEAR(wilson95(0, 10).high, 0.27753, 1e-5);
  EXPECT_EQ(wilson95(0, 0).high, 1);
}

TEST(Identifiers, UlidsSortByTimeAndDigestsAreSha256) {
  const std::string early = makeUlid(1000, 5, 6), late = makeUlid(2000, 1, 1);
  EXPECT_LT(early, late);
  EXPECT_TRUE(isUlid(early));
  EXPECT_FALSE(isUlid("../../etc/passwd"));
  EXPECT_EQ(ulidUnixMs(makeUlid(1'790'000'123'456, 7, 9)), 1'790'000'123'456u);
  EXPECT_EQ(ulidUnixMs("../../etc/passwd"), 0u);
  EXPECT_FALSE(isUlid(early + "0"));
  EXPECT_EQ(sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace allot
