#pragma once
// An experiment's evaluation and results of its units, small and made by hand. For tests.
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "core/evaluation/evaluation_check.h"
#include "core/spec/choices.h"
#include "tests/proto_text.h"

namespace allot {

inline v1::Experiment gridOf(uint32_t questions, const std::vector<std::string>& methods) {
  auto e = messageFrom<v1::Experiment>(R"(spec {
    seed: 7 policy { total_budget: 8 } task { tasks: ["niah", "freq"] }
    evaluation { measures: "accuracy" }
  })");
  e.mutable_spec()->mutable_task()->set_held_out_questions(questions);
  for (const std::string& method : methods) {
    e.mutable_spec()->mutable_evaluation()->add_methods(method);
  }
  return e;
}

// The same with schedules of these kinds, and their total budgets.
inline v1::Experiment gridOf(uint32_t questions, const std::vector<std::string>& methods,
                             const std::vector<std::string>& kinds,
                             const std::vector<uint32_t>& budgets) {
  v1::Experiment e = gridOf(questions, methods);
  v1::Evaluation& evaluation = *e.mutable_spec()->mutable_evaluation();
  for (const std::string& kind : kinds) evaluation.add_schedules()->set_kind(kind);
  *evaluation.mutable_budgets() = {budgets.begin(), budgets.end()};
  return e;
}

inline v1::PolicySnapshot threeLayers() {
  return messageFrom<v1::PolicySnapshot>("logits: [0, 0, 0]");
}

// A graded unit of santa: the scores of questions from `first` on, of tasks 0 and 1 in turn.
inline v1::EvaluationResult graded(uint32_t first, const std::vector<double>& scores) {
  auto result = messageFrom<v1::EvaluationResult>(R"(
    unit {
      unit_id: "v000000/c0000/santa/uniform/8" method: "santa" schedule_name: "uniform"
      schedule: [3, 3, 2] total_budget: 8 measure: "accuracy"
    }
    counts {
      unique_rows: 10 group_rows: 8 dense_rows: 100 key_bytes: 300 value_bytes: 100 dense_bytes: 1000
    }
    seconds: 3)");
  result.mutable_unit()->set_first_question(first);
  result.mutable_unit()->set_question_count(static_cast<uint32_t>(scores.size()));
  for (size_t i = 0; i < scores.size(); ++i) {
    auto* score = result.add_scores();
    score->set_question(first + static_cast<uint32_t>(i));
    score->set_score(scores[i]);
    score->set_task(static_cast<uint32_t>(i % 2));
  }
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
  setFields("agreement { steps: 10 agreed: 10 } agreement { task: 1 steps: 10 agreed: 5 }",
            &result);
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
