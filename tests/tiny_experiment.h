#pragma once
// A small experiment without a model's files, and what its workers push. For tests.
#include <algorithm>
#include <string>
#include <vector>

#include "core/learning/policy.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
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
  const RunStreams streams = runStreams(spec);
  const uint32_t least = spec.policy().min_per_layer();
  const std::vector<double> logits(policy.logits().begin(), policy.logits().end());
  const auto schedule =
      drawSchedule(softmax(logits), spec.policy().total_budget(), least, streams, ticket);
  v1::EpisodeResult result;
  result.set_result_id("w-" + std::to_string(ticket));
  result.set_ticket(ticket);
  result.set_policy_version(policy.version());
  result.set_policy_sha256(policyDigest(policy));
  *result.mutable_schedule() = {schedule.begin(), schedule.end()};
  result.set_behaviour_log_prob(logProbability(schedule, logits, least));
  const uint32_t count = spec.rollout().questions_per_episode();
  for (const uint32_t question :
       episodeQuestions(streams, ticket, count, spec.task().train_questions())) {
    const auto place = static_cast<uint32_t>(result.scores_size());
    v1::QuestionScore& score = *result.add_scores();
    score.set_question(question);
    score.set_score(place < schedule[1] ? 1 : 0);
  }
  result.set_reward(std::min<double>(schedule[1], count) / count);
  return result;
}

}  // namespace allot
