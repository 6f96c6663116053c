#pragma once
// A small experiment without a model's files, and what its workers push. For tests.
#include <algorithm>
#include <string>
#include <vector>

#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/replay.h"
#include "core/learning/schedule.h"
#include "core/learning/update.h"
#include "core/spec/spec.h"
#include "tests/results.h"

namespace allot {

// Returns a checked experiment: updates of two episodes of four questions each.
inline v1::Experiment tinyExperiment(const std::vector<std::string>& settings = {}) {
  return valueOf(parseExperiment(R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: test}
spec:
  seed: 3
  model: {path: none}
  task: {suite: recall, tasks: [niah], trainQuestions: 32, heldOutQuestions: 40}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {learner: reinforce, episodesPerUpdate: 2, maxUpdates: 4}
)",
                                 "test", settings));
}

// Returns what a worker makes of a ticket, if reads in layer 1 are what helps.
inline v1::EpisodeResult episodeOf(const v1::Spec& spec, const v1::PolicySnapshot& policy,
                                   uint64_t ticket) {
  const auto [schedule, log_probability] = scheduleOf(spec, policy, ticket);
  v1::EpisodeResult result;
  result.set_result_id("w-" + std::to_string(ticket));
  result.set_ticket(ticket);
  result.set_policy_version(policy.version());
  result.set_policy_sha256(policyDigest(policy));
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  result.set_behaviour_log_prob(log_probability);
  const uint32_t count = spec.rollout().questions_per_episode();
  for (const uint32_t question : questionsOf(spec, policy, ticket)) {
    const auto place = static_cast<uint32_t>(result.scores_size());
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(question);
    score.set_score(place < schedule[1] ? 1 : 0);
  }
  result.set_reward(std::min<double>(schedule[1], count) / count);
  return result;
}

// Returns the records of `count` updates of three episodes each, with lags of up to three, and the
// state that they come to.
inline std::pair<std::vector<v1::IterationRecord>, v1::AggregatorState> lateHistory(
    const v1::Experiment& experiment, const v1::AggregatorState& initial, int count) {
  v1::AggregatorState state = initial;
  std::vector<v1::PolicySnapshot> policies = {state.policy()};
  std::vector<v1::IterationRecord> records;
  uint64_t ticket = 0;
  for (int update = 0; update < count; ++update) {
    std::vector<v1::EpisodeResult> results;
    for (size_t i = 0; i < 3; ++i, ++ticket) {
      const size_t late = std::min(ticket % 4, policies.size() - 1);
      results.push_back(episodeOf(experiment.spec(), policies[policies.size() - 1 - late], ticket));
    }
    UpdateOutcome outcome = applyUpdate(experiment, state, results);
    outcome.record.set_committed_unix_ms(1000 + update);
    records.push_back(outcome.record);
    state = outcome.state;
    policies.push_back(state.policy());
  }
  return {records, state};
}

// Returns the message of the first record that the replay refuses. If it takes all, checks that
// they come to `end`, and returns "".
inline std::string replayRefusal(Replay replay, const std::vector<v1::IterationRecord>& records,
                                 const v1::AggregatorState& end) {
  for (const auto& record : records) {
    if (const Status same = replay.next(record); !same) {
      EXPECT_EQ(same.error().code, ErrorCode::kData);
      return same.error().message;
    }
  }
  EXPECT_EQ(replay.state().SerializeAsString(), end.SerializeAsString());
  return "";
}

}  // namespace allot
