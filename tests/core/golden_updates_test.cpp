// Updates against tests/golden/updates.json: every option of the policy gradient, computed from its
// definition by another program in another language with 50 digits (make_updates.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/learning/policy.h"
#include "core/learning/update.h"

namespace allot {
namespace {

using nlohmann::json;

v1::Experiment experimentOf(const json& golden) {
  v1::Experiment experiment;
  v1::Spec& spec = *experiment.mutable_spec();
  spec.mutable_policy()->set_total_budget(golden["policy"]["total_budget"]);
  spec.mutable_policy()->set_min_per_layer(golden["policy"]["min_per_layer"]);
  const json& update = golden["update"];
  spec.mutable_update()->set_optimizer(update["optimizer"]);
  spec.mutable_update()->set_learning_rate(update["learning_rate"]);
  spec.mutable_update()->set_baseline(update["baseline"]);
  spec.mutable_update()->set_entropy_bonus(update["entropy_bonus"]);
  if (update.contains("learner")) spec.mutable_update()->set_learner(update["learner"]);
  const json& staleness = golden["staleness"];
  spec.mutable_staleness()->set_mode(staleness["mode"]);
  spec.mutable_staleness()->set_rho_bar(staleness["rho_bar"]);
  spec.mutable_staleness()->set_max_lag(staleness["max_lag"]);
  return experiment;
}

v1::AggregatorState stateFrom(const json& golden) {
  v1::AggregatorState state;
  state.mutable_policy()->set_version(golden["version"]);
  for (const double x : golden["logits"]) state.mutable_policy()->add_logits(x);
  for (const double m : golden["first_moment"]) state.add_first_moment(m);
  for (const double v : golden["second_moment"]) state.add_second_moment(v);
  state.set_moving_baseline(golden["moving_baseline"]);
  state.set_has_moving_baseline(golden["has_moving_baseline"]);
  state.set_episodes(golden["episodes"]);
  state.set_worker_seconds(golden["worker_seconds"]);
  state.set_optimizer_steps(golden["optimizer_steps"]);
  for (const uint64_t count : golden["lag_counts"]) state.add_lag_counts(count);
  return state;
}

std::vector<v1::EpisodeResult> resultsOf(const json& golden) {
  std::vector<v1::EpisodeResult> results;
  for (const json& episode : golden) {
    v1::EpisodeResult& result = results.emplace_back();
    result.set_policy_version(episode["policy_version"]);
    for (const uint32_t samples : episode["schedule"]) result.add_schedule(samples);
    result.set_behaviour_log_prob(episode["behaviour_log_prob"]);
    result.set_reward(episode["reward"]);
    result.set_seconds(episode["seconds"]);
  }
  return results;
}

void expectNear(double computed, double golden, const std::string& what) {
  // A number that cancels to nothing is as precise as what it is made of, which is about 1.
  EXPECT_LE(std::abs(computed - golden), 1e-12 * std::abs(golden) + 1e-16)
      << what << ": " << computed << " instead of " << golden;
}

void expectNear(const google::protobuf::RepeatedField<double>& computed, const json& golden,
                const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(computed.size()), golden.size()) << what;
  for (int i = 0; i < computed.size(); ++i) {
    expectNear(computed[i], golden[i], what + "[" + std::to_string(i) + "]");
  }
}

void expectRecord(const v1::IterationRecord& record, const json& golden) {
  EXPECT_EQ(record.version(), golden["version"]);
  expectNear(record.weights(), golden["weights"], "weights");
  expectNear(record.baselines(), golden["baselines"], "baselines");
  expectNear(record.mean_reward(), golden["mean_reward"], "mean_reward");
  expectNear(record.gradient_norm(), golden["gradient_norm"], "gradient_norm");
  expectNear(record.step_kl_nats(), golden["step_kl_nats"], "step_kl_nats");
  expectNear(record.entropy_nats(), golden["entropy_nats"], "entropy_nats");
  expectNear(record.effective_sample_size_ratio(), golden["effective_sample_size_ratio"],
             "effective_sample_size_ratio");
  expectNear(record.mean_lag_updates(), golden["mean_lag_updates"], "mean_lag_updates");
}

void expectState(const v1::AggregatorState& state, const json& golden) {
  EXPECT_EQ(state.policy().version(), golden["version"]);
  expectNear(state.policy().logits(), golden["logits"], "logits");
  expectNear(state.first_moment(), golden["first_moment"], "first_moment");
  expectNear(state.second_moment(), golden["second_moment"], "second_moment");
  expectNear(state.moving_baseline(), golden["moving_baseline"], "moving_baseline");
  EXPECT_EQ(state.has_moving_baseline(), golden["has_moving_baseline"]);
  EXPECT_EQ(state.episodes(), golden["episodes"]);
  expectNear(state.worker_seconds(), golden["worker_seconds"], "worker_seconds");
  EXPECT_EQ(state.optimizer_steps(), golden["optimizer_steps"]);
  EXPECT_EQ((std::vector<uint64_t>{state.lag_counts().begin(), state.lag_counts().end()}),
            golden["lag_counts"].get<std::vector<uint64_t>>());
}

TEST(GoldenUpdates, EveryFieldOfEveryUpdate) {
  std::ifstream file(ALLOT_SOURCE_DIR "/tests/golden/updates.json");
  const json updates = json::parse(file);
  ASSERT_GE(updates.size(), 21u);
  for (const json& golden : updates) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const auto results = resultsOf(golden["results"]);
    const auto experiment = experimentOf(golden);
    const auto outcome = applyUpdate(experiment, stateFrom(golden["state"]), results);
    expectRecord(outcome.record, golden["record"]);
    expectState(outcome.state, golden["next"]);
    // And what the record repeats.
    EXPECT_EQ(outcome.record.policy().SerializeAsString(),
              outcome.state.policy().SerializeAsString());
    EXPECT_EQ(outcome.record.policy_sha256(), policyDigest(outcome.state.policy()));
    EXPECT_EQ(static_cast<size_t>(outcome.record.results_size()), results.size());
    EXPECT_EQ(outcome.record.update().SerializeAsString(),
              experiment.spec().update().SerializeAsString());
    EXPECT_EQ(outcome.record.staleness().SerializeAsString(),
              experiment.spec().staleness().SerializeAsString());
  }
}

}  // namespace
}  // namespace allot
