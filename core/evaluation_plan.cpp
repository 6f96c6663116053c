#include "core/evaluation_plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <set>

namespace allot {
namespace {

struct Cell {
  std::string method;
  std::string schedule_name;
  uint64_t total_budget = 0;
  SampleSchedule schedule;  // empty for dense
};

std::string numbered(const char* name, size_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%s-%02zu", name, number);
  return text;
}

uint64_t totalOf(const SampleSchedule& schedule) {
  return std::accumulate(schedule.begin(), schedule.end(), uint64_t{0});
}

std::vector<Cell> cellsOf(const v1::Experiment& experiment, const std::string& method,
                          const v1::PolicySnapshot& policy) {
  const v1::Spec& spec = experiment.spec();
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  // Version 0 is uniform, unless the run is a fork.
  const auto [least, most] = std::minmax_element(policy.logits().begin(), policy.logits().end());
  const bool first = policy.version() == 0, has_learned = !first || *least != *most;
  std::vector<Cell> cells;
  size_t explicit_number = 0;
  for (const v1::Schedule& schedule : spec.evaluation().schedules()) {
    const bool learned = schedule.kind() == "learned";
    if (schedule.kind() == "explicit") {
      const SampleSchedule samples(schedule.samples().begin(), schedule.samples().end());
      const std::string name = numbered("explicit", explicit_number++);
      if (first) cells.push_back({method, name, totalOf(samples), samples});
      continue;
    }
    if (learned ? !has_learned : !first) continue;
    for (uint32_t budget : spec.evaluation().budgets()) {
      if (schedule.kind() == "uniform") {
        cells.push_back({method, "uniform", budget, uniformSchedule(budget, layers)});
      } else if (learned) {
        cells.push_back(
            {method, "learned", budget,
             learnedSchedule(softmax({policy.logits().begin(), policy.logits().end()}), budget,
                             spec.policy().min_per_layer(), spec.policy().total_budget())});
      } else {
        for (uint32_t l = 0; l < layers; ++l) {
          cells.push_back(
              {method, numbered("oneHot", l), budget, oneHotSchedule(budget, layers, l)});
        }
      }
    }
  }
  return cells;
}

}  // namespace

bool evaluationDue(const v1::Experiment& experiment, uint64_t version) {
  const v1::Spec& spec = experiment.spec();
  if (version == 0 || (spec.has_update() && version >= spec.update().max_updates())) return true;
  const uint32_t every = spec.evaluation().every_updates();
  return every > 0 && version % every == 0;
}

std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy) {
  const v1::Spec& spec = experiment.spec();
  std::vector<Cell> cells;
  for (const std::string& method : spec.evaluation().methods()) {
    if (method == "dense") {
      if (policy.version() == 0) cells.push_back({"dense", "dense", 0, {}});
      continue;
    }
    const auto more = cellsOf(experiment, method, policy);
    cells.insert(cells.end(), more.begin(), more.end());
  }
  const uint32_t questions = spec.task().held_out_questions();
  std::vector<v1::EvaluationUnit> units;
  for (uint32_t first = 0; first < questions; first += kChunkQuestions) {
    for (const Cell& cell : cells) {
      v1::EvaluationUnit unit;
      const uint32_t chunk = first / kChunkQuestions;
      char id[160];
      std::snprintf(id, sizeof id, "v%06llu/c%04u/%s/%s/%llu",
                    static_cast<unsigned long long>(policy.version()), chunk, cell.method.c_str(),
                    cell.schedule_name.c_str(), static_cast<unsigned long long>(cell.total_budget));
      unit.set_unit_id(id);
      unit.set_policy_version(policy.version());
      unit.set_method(cell.method);
      unit.set_schedule_name(cell.schedule_name);
      unit.set_total_budget(cell.total_budget);
      *unit.mutable_schedule() = {cell.schedule.begin(), cell.schedule.end()};
      unit.set_chunk(chunk);
      unit.set_first_question(first);
      unit.set_question_count(std::min(kChunkQuestions, questions - first));
      units.push_back(std::move(unit));
    }
  }
  return units;
}

std::optional<uint64_t> versionOfUnit(const std::string& unit_id) {
  const size_t slash = unit_id.find('/');
  if (slash == std::string::npos || unit_id[0] != 'v') return std::nullopt;
  uint64_t version = 0;
  const char* end = unit_id.data() + slash;
  const auto [stop, error] = std::from_chars(unit_id.data() + 1, end, version);
  if (error != std::errc() || stop != end) return std::nullopt;
  return version;
}

bool EvaluationTable::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  if (static_cast<uint32_t>(result.scores_size()) != unit.question_count()) return false;
  if (!(result.seconds() >= 0 && result.seconds() < 1e7)) return false;  // as of episodes
  std::set<uint32_t> questions;
  for (const v1::QuestionScore& score : result.scores()) {
    const bool in_unit = score.question() >= unit.first_question() &&
                         score.question() - unit.first_question() < unit.question_count();
    if (!in_unit || !questions.insert(score.question()).second) return false;
    if (!(score.score() >= 0 && score.score() <= 1)) return false;
  }
  EvaluationCell& cell =
      cells_[{unit.policy_version(), unit.method(), unit.schedule_name(), unit.total_budget()}];
  cell.version = unit.policy_version();
  cell.method = unit.method();
  cell.schedule_name = unit.schedule_name();
  cell.total_budget = unit.total_budget();
  cell.schedule.assign(unit.schedule().begin(), unit.schedule().end());
  for (const v1::QuestionScore& score : result.scores()) {
    ++cell.n;
    cell.sum += score.score();
  }
  cell.seconds += result.seconds();
  cell.complete = cell.n == held_out_;
  return true;
}

std::vector<EvaluationCell> EvaluationTable::cells() const {
  std::vector<EvaluationCell> cells;
  for (const auto& [key, cell] : cells_) cells.push_back(cell);
  return cells;
}

double EvaluationTable::learnedAccuracy(uint64_t total_budget) const {
  double accuracy = -1;
  for (const auto& [key, cell] : cells_) {  // ascending version: the newest stays
    if (cell.complete && cell.schedule_name == "learned" && cell.total_budget == total_budget) {
      accuracy = cell.sum / static_cast<double>(cell.n);
    }
  }
  return accuracy;
}

}  // namespace allot
