// Replays: a history computes to itself, and no number of it may differ by a bit.
#include "core/learning/replay.h"

#include <cmath>
#include <limits>

#include "core/learning/update.h"
#include "tests/tiny_experiment.h"

namespace allot {
namespace {

constexpr uint32_t kLayers = 4;

double away(double x, int ulps) {
  for (int i = 0; i < std::abs(ulps); ++i) {
    x = std::nextafter(x, std::copysign(std::numeric_limits<double>::infinity(), ulps));
  }
  return x;
}

class ReplayBits : public testing::TestWithParam<const char*> {
 protected:
  ReplayBits()
      : experiment_(tinyExperiment({"spec.seed=1", "spec.task={suite: recall, tasks: [niah]}",
                                    "spec.update={episodesPerUpdate: 3, entropyBonus: 0.01}",
                                    std::string("spec.update.optimizer=") + GetParam(),
                                    "spec.staleness.rhoBar=2"})),
        initial_(initialState(experiment_, kLayers)) {}

  // `count` updates, with lags of up to three.
  std::vector<v1::IterationRecord> history(int count) {
    v1::AggregatorState state = initial_;
    std::vector<v1::PolicySnapshot> policies = {state.policy()};
    std::vector<v1::IterationRecord> records;
    uint64_t ticket = 0;
    for (int update = 0; update < count; ++update) {
      std::vector<v1::EpisodeResult> results;
      for (size_t i = 0; i < 3; ++i, ++ticket) {
        results.push_back(episodeOf(
            experiment_.spec(),
            policies[policies.size() - 1 - std::min(ticket % 4, policies.size() - 1)], ticket));
      }
      UpdateOutcome outcome = applyUpdate(experiment_, state, results);
      state = outcome.state;
      policies.push_back(state.policy());
      records.push_back(outcome.record);
    }
    final_ = state;
    return records;
  }

  // What the replay says of all records; "" if it takes them.
  std::string refusal(Replay* replay, const std::vector<v1::IterationRecord>& records) const {
    for (const auto& record : records) {
      if (const Status same = replay->next(record); !same) return same.error().message;
    }
    return "";
  }
  Replay replay(uint64_t window = kPolicyWindow) const {
    return Replay(experiment_, initial_, false, window);
  }

  const v1::Experiment experiment_;
  const v1::AggregatorState initial_;
  v1::AggregatorState final_;
};

TEST_P(ReplayBits, AHistoryComputesToItself) {
  Replay replay = this->replay();
  ASSERT_EQ(refusal(&replay, history(40)), "");
  EXPECT_EQ(replay.state().SerializeAsString(), final_.SerializeAsString());
}

TEST_P(ReplayBits, NoNumberMayDiffer) {
  const auto good = history(40);
  using Change = std::function<void(v1::IterationRecord*)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"it computes to policy",
       [](auto* r) {
         r->mutable_policy()->set_logits(1, r->policy().logits(1) + 1e-6);
         r->set_policy_sha256(policyDigest(r->policy()));
       }},
      {"it computes to policy",
       [](auto* r) {
         r->mutable_policy()->set_logits(1, NAN);
         r->set_policy_sha256(policyDigest(r->policy()));
       }},
      {"it computes to policy",
       [](auto* r) {
         r->mutable_policy()->add_logits(0);
         r->set_policy_sha256(policyDigest(r->policy()));
       }},
      // The digest is that of the policy before the change.
      {"policy.logits",
       [](auto* r) { r->mutable_policy()->set_logits(1, away(r->policy().logits(1), 1)); }},
      {"step_kl_nats", [](auto* r) { r->set_step_kl_nats(away(r->step_kl_nats(), 1)); }},
      {"step_kl_nats", [](auto* r) { r->set_step_kl_nats(NAN); }},
      {"entropy_nats", [](auto* r) { r->set_entropy_nats(away(r->entropy_nats(), -1)); }},
      {"gradient_norm", [](auto* r) { r->set_gradient_norm(away(r->gradient_norm(), 1)); }},
      {"effective_sample", [](auto* r) { r->set_effective_sample_size_ratio(1.5); }},
      {"weights", [](auto* r) { r->set_weights(2, away(r->weights(2), 1)); }},
      {"weights", [](auto* r) { r->set_weights(2, INFINITY); }},
      {"mean_reward", [](auto* r) { r->set_mean_reward(away(r->mean_reward(), 1)); }},
      {"baselines", [](auto* r) { r->set_baselines(0, away(r->baselines(0), 1)); }},
      {"mean_lag", [](auto* r) { r->set_mean_lag_updates(away(r->mean_lag_updates(), 1)); }},
  };
  for (const auto& [expected, change] : changes) {
    auto records = good;
    change(&records.back());
    Replay replay = this->replay();
    EXPECT_THAT(refusal(&replay, records), HasSubstr(expected));
  }
}

// The history's results are up to three updates old.
TEST_P(ReplayBits, APolicyOutsideTheWindowIsRefused) {
  Replay wide = replay(4), narrow = replay(3);
  const auto records = history(40);
  EXPECT_EQ(refusal(&wide, records), "");
  EXPECT_THAT(refusal(&narrow, records), HasSubstr("its policy is too old"));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ReplayBits, testing::Values("adam", "sgd"));

}  // namespace
}  // namespace allot
