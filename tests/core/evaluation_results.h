#pragma once
// An experiment's evaluation and results of its units, small and made by hand. For tests.
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "core/evaluation/evaluation_check.h"
#include "core/spec/choices.h"

namespace allot {

inline v1::Experiment gridOf(uint32_t questions, const std::vector<std::string>& methods) {
  v1::Experiment e;
  auto* spec = e.mutable_spec();
  spec->set_seed(7);
  spec->mutable_policy()->set_total_budget(8);
  spec->mutable_task()->set_held_out_questions(questions);
  for (const char* task : {"niah", "freq"}) spec->mutable_task()->add_tasks(task);
  for (const std::string& method : methods) spec->mutable_evaluation()->add_methods(method);
  spec->mutable_evaluation()->add_measures("accuracy");
  return e;
}

inline v1::PolicySnapshot threeLayers() {
  v1::PolicySnapshot policy;
  for (int l = 0; l < 3; ++l) policy.add_logits(0);
  return policy;
}

// A graded unit of santa: the scores of questions from `first` on, of tasks 0 and 1 in turn.
inline v1::EvaluationResult graded(uint32_t first, const std::vector<double>& scores) {
  v1::EvaluationResult result;
  auto* unit = result.mutable_unit();
  unit->set_unit_id("v000000/c0000/santa/uniform/8");
  unit->set_method("santa");
  unit->set_schedule_name("uniform");
  unit->set_total_budget(8);
  unit->set_measure("accuracy");
  for (uint32_t n : {3u, 3u, 2u}) unit->add_schedule(n);
  unit->set_first_question(first);
  unit->set_question_count(static_cast<uint32_t>(scores.size()));
  for (size_t i = 0; i < scores.size(); ++i) {
    auto* score = result.add_scores();
    score->set_question(first + static_cast<uint32_t>(i));
    score->set_score(scores[i]);
    score->set_task(static_cast<uint32_t>(i % 2));
  }
  auto* counts = result.mutable_counts();
  counts->set_unique_rows(10);
  counts->set_group_rows(8);
  counts->set_dense_rows(100);
  counts->set_key_bytes(300);
  counts->set_value_bytes(100);
  counts->set_dense_bytes(1000);
  result.set_seconds(3);
  return result;
}

inline v1::EvaluationResult learned(uint64_t version, const std::string& method, uint64_t budget,
                                    double score, const std::string& schedule = "learned") {
  v1::EvaluationResult result = graded(0, {score, score});
  result.mutable_unit()->set_policy_version(version);
  result.mutable_unit()->set_method(method);
  result.mutable_unit()->set_total_budget(budget);
  result.mutable_unit()->set_schedule_name(schedule);
  return result;
}

// Sums over `states` states, each with this relative error.
inline v1::FidelityCell fidelityCell(uint32_t task, uint32_t layer, uint32_t support,
                                     uint64_t states, double error) {
  const auto n = static_cast<double>(states);
  v1::FidelityCell cell;
  cell.set_task(task);
  cell.set_layer(layer);
  cell.set_support(support);
  cell.set_states(states);
  cell.set_relative_error(n * error);
  cell.set_relative_error_squared(n * error * error);
  cell.set_cosine(n * (1 - error));
  cell.set_squared_error(n * 4 * error);
  cell.set_exceeded(states / 2);
  cell.set_draws(8 * states);
  cell.set_unique_rows(6 * states);
  cell.set_dense_rows(60 * states);
  cell.set_effective_sample_size(5 * n);
  return cell;
}

inline v1::EvaluationResult compared(const std::string& method, uint64_t budget, uint32_t first,
                                     std::vector<v1::FidelityCell> cells) {
  v1::EvaluationResult result = graded(first, {1, 1});
  result.clear_scores();
  auto* unit = result.mutable_unit();
  unit->set_measure("fidelity");
  unit->set_method(method);
  unit->set_total_budget(budget);
  unit->clear_schedule();
  for (int l = 0; l < 2; ++l) unit->add_schedule(static_cast<uint32_t>(budget / 2));
  for (const auto& cell : cells) *result.add_fidelity() = cell;
  for (uint32_t task : {0u, 1u}) {
    auto* agreement = result.add_agreement();
    agreement->set_task(task);
    agreement->set_steps(10);
    agreement->set_agreed(task == 0 ? 10 : 5);
  }
  return result;
}

// Ten positions of four outputs each.
inline v1::EvaluationResult replicated(const std::string& method, uint64_t budget, uint32_t first,
                                       double variance, bool closed_form = true) {
  v1::FidelityCell cell = fidelityCell(0, 0, 1, 40, 0.5);
  cell.set_positions(10);
  cell.set_variance(10 * variance);
  cell.set_squared_error(40 * variance);
  if (closed_form) {
    cell.set_closed_form_positions(10);
    cell.set_closed_form(11 * variance);
  }
  v1::EvaluationResult result = compared(method, budget, first, {cell});
  result.mutable_unit()->set_measure("variance");
  result.clear_agreement();
  return result;
}

}  // namespace allot
