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

  std::vector<v1::IterationRecord> history() {
    auto [records, end] = lateHistory(experiment_, initial_, 40);
    final_ = std::move(end);
    return records;
  }

  // What the replay says of all records; "" if it takes them.
  std::string refusal(const std::vector<v1::IterationRecord>& records,
                      uint64_t window = kPolicyWindow) const {
    return replayRefusal({experiment_, initial_, false, window}, records, final_);
  }

  const v1::Experiment experiment_;
  const v1::AggregatorState initial_;
  v1::AggregatorState final_;
};

TEST_P(ReplayBits, AHistoryComputesToItself) { EXPECT_EQ(refusal(history()), ""); }

TEST_P(ReplayBits, NoNumberMayDiffer) {
  const auto good = history();
  using Change = std::function<void(v1::IterationRecord*)>;
  const auto policy = [](auto change) -> Change {
    return [=](v1::IterationRecord* r) {
      change(r->mutable_policy());
      r->set_policy_sha256(policyDigest(r->policy()));
    };
  };
  const std::vector<std::pair<const char*, Change>> changes = {
      {"it computes to policy", policy([](auto* p) { p->set_logits(1, p->logits(1) + 1e-6); })},
      {"it computes to policy", policy([](auto* p) { p->set_logits(1, NAN); })},
      {"it computes to policy", policy([](auto* p) { p->add_logits(0); })},
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
    EXPECT_THAT(refusal(records), HasSubstr(expected));
  }
}

// The history's results are up to three updates old.
TEST_P(ReplayBits, APolicyOutsideTheWindowIsRefused) {
  const auto records = history();
  EXPECT_EQ(refusal(records, 4), "");
  EXPECT_THAT(refusal(records, 3), HasSubstr("its policy is too old"));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ReplayBits, testing::Values("adam", "sgd"));

}  // namespace
}  // namespace allot
