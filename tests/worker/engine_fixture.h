#pragma once
// Engines of recall-7m and the units that they are asked. For tests.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/results.h"
#include "tests/worker/recall_experiment.h"
#include "worker/engine/engine.h"

namespace allot {

inline std::unique_ptr<Engine> load(const v1::Experiment& e, size_t kv_mib) {
  return valueOf(Engine::load(e, {.model_folder = kRecall7m, .kv_bytes = kv_mib << 20}));
}

// All of a result but the clock.
// Settings of a task whose prompts have 192 tokens, before `more`.
inline std::vector<std::string> small(uint32_t train, uint32_t held_out,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> set = {"spec.task.contextTokens=192",
                                  "spec.task.trainQuestions=" + std::to_string(train),
                                  "spec.task.heldOutQuestions=" + std::to_string(held_out)};
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

// Adds up the scores of a result.
template <typename Scored>
double sumOfScores(const Scored& result) {
  double sum = 0;
  for (const auto& score : result.scores()) sum += score.score();
  return sum;
}
// Returns the bytes of each of its scores.
template <typename Scored>
std::vector<std::string> scoresOf(const Scored& result) {
  std::vector<std::string> scores;
  for (const auto& score : result.scores()) scores.push_back(score.SerializeAsString());
  return scores;
}

inline v1::EvaluationResult timeless(v1::EvaluationResult result) {
  result.clear_seconds();
  result.mutable_counts()->clear_prefill_seconds();
  result.mutable_counts()->clear_decode_seconds();
  result.mutable_prefill()->clear_seconds();
  result.mutable_prefill()->clear_selection_seconds();
  return result;
}

// A unit on the first questions, with the same budget in every layer; none: an empty schedule.
inline v1::EvaluationUnit unitOf(const std::string& method, std::optional<uint32_t> budget,
                                 uint32_t questions) {
  v1::EvaluationUnit unit;
  unit.set_unit_id("u");
  unit.set_method(method);
  unit.set_question_count(questions);
  for (int l = 0; budget && l < 8; ++l) unit.add_schedule(*budget);
  return unit;
}

// spec.evaluation.methods: what a pool holds is decided by them.
inline v1::Experiment experimentOf(const std::vector<std::string>& methods,
                                   const std::vector<std::string>& set) {
  v1::Experiment e = experiment(set);
  e.mutable_spec()->mutable_evaluation()->clear_methods();
  for (const auto& method : methods) e.mutable_spec()->mutable_evaluation()->add_methods(method);
  return e;
}

}  // namespace allot
