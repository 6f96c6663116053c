// Updates against tests/golden/updates.json: every option of the policy gradient, computed from its
// definition by another program in another language with 50 digits (make_updates.py).
#include <google/protobuf/util/json_util.h>
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

// Returns the message whose fields these are; others of the file are passed over.
template <typename Message>
Message messageOfJson(const json& fields) {
  Message message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = JsonStringToMessage(fields.dump(), &message, options);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return message;
}

v1::AggregatorState stateFrom(json golden) {
  golden["policy"] = {{"version", golden["version"]}, {"logits", golden["logits"]}};
  return messageOfJson<v1::AggregatorState>(golden);
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
    std::vector<v1::EpisodeResult> results;
    for (const json& episode : golden["results"]) {
      results.push_back(messageOfJson<v1::EpisodeResult>(episode));
    }
    v1::Experiment experiment;
    *experiment.mutable_spec() = messageOfJson<v1::Spec>(golden);
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
