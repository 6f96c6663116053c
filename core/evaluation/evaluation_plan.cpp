#include "core/evaluation/evaluation_plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "allot/kernels/method.h"
#include "core/learning/measured.h"
#include "core/learning/policy.h"
#include "core/learning/priced_schedule.h"
#include "core/spec/measure_options.h"

namespace allot {
namespace {

constexpr char kDense[] = "dense";

struct Cell {
  std::string prefill, method;
  std::string schedule_name;
  uint64_t total_budget = 0;
  SampleSchedule schedule;  // empty for a method without a budget
};

std::string padded(uint64_t number, size_t width) {
  const std::string text = std::to_string(number);
  return std::string(width - std::min(width, text.size()), '0') + text;
}

std::string nameOf(ScheduleKind kind) { return std::string(wordOf(kind)); }
std::string nameOf(ScheduleKind kind, size_t number) {
  return nameOf(kind) + "-" + padded(number, 2);
}

std::string oneHotName(size_t layer, uint32_t reads) {
  const std::string name = nameOf(ScheduleKind::kOneHot, layer);
  return reads == 1 ? name : name + "-reads-" + std::to_string(reads);
}

uint64_t totalOf(const SampleSchedule& schedule) {
  return std::accumulate(schedule.begin(), schedule.end(), uint64_t{0});
}

std::vector<Cell> cellsOf(const v1::Experiment& experiment, const std::string& prefill,
                          const std::string& method, const v1::PolicySnapshot& policy,
                          const Measuring& measuring) {
  const v1::Spec& spec = experiment.spec();
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  // The policy of version 0 has learned nothing, unless the run is a fork.
  const auto [least, most] = std::minmax_element(policy.logits().begin(), policy.logits().end());
  const bool learned_before =
      std::any_of(policy.frontier().budgets().begin(), policy.frontier().budgets().end(),
                  [](const v1::BudgetPolicy& budget) { return budget.beats_uniform(); });
  const bool first = policy.version() == 0;
  const bool has_learned = !first || *least != *most || learned_before;
  std::vector<Cell> cells;
  size_t explicit_number = 0;
  for (const v1::Schedule& schedule : spec.evaluation().schedules()) {
    const ScheduleKind kind = kindOf(schedule);
    if (kind == ScheduleKind::kExplicit) {
      const SampleSchedule samples(schedule.samples().begin(), schedule.samples().end());
      const std::string name = nameOf(kind, explicit_number++);
      if (first) cells.push_back({prefill, method, name, totalOf(samples), samples});
      continue;
    }
    if (kind == ScheduleKind::kLearned ? !has_learned : !first) continue;
    if (kind == ScheduleKind::kMeasured && measuring.result == nullptr) continue;
    for (uint32_t budget : spec.evaluation().budgets()) {
      switch (kind) {
        case ScheduleKind::kUniform:
          // A price may buy no uniform schedule.
          if (const auto uniform = uniformOf(policy, budget)) {
            cells.push_back({prefill, method, nameOf(kind), budget, *uniform});
          }
          break;
        case ScheduleKind::kLearned:
          cells.push_back(
              {prefill, method, nameOf(kind), budget, publishedSchedule(spec, policy, budget)});
          break;
        case ScheduleKind::kOneHot:
          for (uint32_t l = 0; l < layers; ++l) {
            cells.push_back({prefill, method, oneHotName(l, readsOf(schedule)), budget,
                             oneHotSchedule(budget, layers, l, readsOf(schedule))});
          }
          break;
        case ScheduleKind::kMeasured:
          cells.push_back({prefill, method, nameOf(kind), budget,
                           measuredSchedule(*measuring.result, pricesOf(policy), budget,
                                            spec.policy().min_per_layer())});
          break;
        case ScheduleKind::kExplicit:
          break;  // above: its budget is its own
      }
    }
  }
  return cells;
}

// Returns the most cells of one pair of methods under a schedule.
uint64_t mostCells(ScheduleKind kind, uint64_t budgets, uint32_t layers) {
  if (kind == ScheduleKind::kExplicit) return 1;
  return kind == ScheduleKind::kOneHot ? budgets * layers : budgets;
}

// Returns true if a method of the pair has a budget. Text that is no method counts as one that has;
// workers refuse its units.
bool usesBudget(const std::string& prefill, const std::string& decode) {
  const auto uses = [](const std::string& text, kernels::Phase phase) {
    kernels::MethodOptions options;
    return kernels::parseMethod(text, &options, phase) || kernels::usesBudget(options);
  };
  return uses(prefill, kernels::Phase::kPrefill) || uses(decode, kernels::Phase::kDecode);
}

// Returns the prefills; dense if the list is empty.
std::vector<std::string> prefillsOf(const v1::Evaluation& evaluation) {
  if (evaluation.prefills().empty()) return {kDense};
  return {evaluation.prefills().begin(), evaluation.prefills().end()};
}

// Returns the unit, whose id is as in "v000025/c0003/s2anta-flash tileSize=64/uniform/128",
// followed by "/fidelity" or "/variance" for these measures and by "/repeat-01" for repeat 1.
v1::EvaluationUnit unitOf(const Cell& cell, uint64_t version, uint32_t chunk, Measure measure,
                          uint32_t repeat) {
  v1::EvaluationUnit unit;
  unit.set_repeat(repeat);
  unit.set_policy_version(version);
  unit.set_method(cell.method);
  if (cell.prefill != kDense) unit.set_prefill(cell.prefill);
  unit.set_schedule_name(cell.schedule_name);
  unit.set_total_budget(cell.total_budget);
  *unit.mutable_schedule() = {cell.schedule.begin(), cell.schedule.end()};
  unit.set_chunk(chunk);
  unit.set_measure(std::string(wordOf(measure)));
  std::string id = "v" + padded(version, 6) + "/c" + padded(chunk, 4) + "/" + cellOf(unit);
  if (repeat > 0) id += "/repeat-" + padded(repeat, 2);
  unit.set_unit_id(id);
  return unit;
}

}  // namespace

std::string cellOf(const v1::EvaluationUnit& unit) {
  std::string name =
      methodsName(unit) + "/" + unit.schedule_name() + "/" + std::to_string(unit.total_budget());
  const Measure measure = measureOf(unit);
  if (measure != Measure::kAccuracy) name += "/" + std::string(wordOf(measure));
  return name;
}

uint32_t comparedChunks(const v1::Evaluation& evaluation, Measure measure) {
  const uint32_t each = chunkQuestions(evaluation);
  const uint32_t questions = measureOptions(evaluation, measure).questions;
  return questions / each + (questions % each > 0 ? 1 : 0);
}

uint32_t comparedQuestions(const v1::Spec& spec, Measure measure) {
  const uint64_t whole =
      uint64_t{comparedChunks(spec.evaluation(), measure)} * chunkQuestions(spec.evaluation());
  return static_cast<uint32_t>(std::min<uint64_t>(spec.task().held_out_questions(), whole));
}

bool evaluationDue(const v1::Experiment& experiment, uint64_t version) {
  const v1::Spec& spec = experiment.spec();
  if (version == 0 || (spec.has_update() && version >= spec.update().max_updates())) return true;
  const uint32_t every = spec.evaluation().every_updates();
  return every > 0 && version % every == 0;
}

Measuring measuringOf(const v1::Experiment& experiment, const v1::AggregatorState& state,
                      const v1::Origin* origin) {
  return {state.has_measurement() ? &state.measurement() : nullptr,
          inheritsMeasurement(experiment.spec(), origin)};
}

std::vector<v1::EvaluationUnit> planLayerLosses(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Spec& spec = experiment.spec();
  const uint32_t questions = measureQuestions(spec), each = chunkQuestions(spec.evaluation());
  const uint32_t chunks_before = (spec.task().held_out_questions() + each - 1) / each;
  std::vector<v1::EvaluationUnit> units;
  for (uint32_t first = 0; first < questions; first += each) {
    for (const uint32_t reads : kMeasuredReads) {
      const Cell cell{spec.attention().prefill(), spec.attention().decode(), kUniformSchedule,
                      uint64_t{reads} * layers, SampleSchedule(layers, reads)};
      v1::EvaluationUnit unit =
          unitOf(cell, 0, chunks_before + first / each, Measure::kLayerLoss, 0);
      unit.set_first_question(first);
      unit.set_question_count(std::min(each, questions - first));
      units.push_back(std::move(unit));
    }
  }
  return units;
}

std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy,
                                               const Measuring& measuring) {
  const v1::Spec& spec = experiment.spec();
  std::vector<Cell> cells;
  for (const std::string& prefill : prefillsOf(spec.evaluation())) {
    for (const std::string& method : spec.evaluation().methods()) {
      if (!usesBudget(prefill, method)) {
        const bool dense = prefill == kDense && method == kDense;
        const char* name = dense ? kDenseSchedule : kAdaptiveSchedule;
        if (policy.version() == 0) cells.push_back({prefill, method, name, 0, {}});
        continue;
      }
      const auto more = cellsOf(experiment, prefill, method, policy, measuring);
      cells.insert(cells.end(), more.begin(), more.end());
    }
  }
  const uint32_t questions = spec.task().held_out_questions();
  const std::vector<Measure> measures = measuresOf(spec.evaluation());
  std::vector<v1::EvaluationUnit> units;
  if (policy.version() == 0 && !measuring.inherited) {
    units = planLayerLosses(experiment, static_cast<uint32_t>(policy.logits_size()));
  }
  const uint32_t each = chunkQuestions(spec.evaluation());
  std::map<Measure, uint32_t> compared_chunks;
  for (const Measure measure : measures) {
    compared_chunks[measure] = comparedChunks(spec.evaluation(), measure);
  }
  for (uint32_t first = 0; first < questions; first += each) {
    const uint32_t chunk = first / each;
    for (const Measure measure : measures) {
      const bool compares = measure != Measure::kAccuracy;
      if (compares && chunk >= compared_chunks[measure]) continue;
      for (const Cell& cell : cells) {
        if (compares && cell.method == kDense) continue;
        const uint32_t repeats = compares ? 1 : repeatsOf(spec, cell.prefill, cell.method);
        for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
          v1::EvaluationUnit unit = unitOf(cell, policy.version(), chunk, measure, repeat);
          unit.set_first_question(first);
          unit.set_question_count(std::min(each, questions - first));
          units.push_back(std::move(unit));
        }
      }
    }
  }
  return units;
}

Status checkGrid(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Evaluation& evaluation = experiment.spec().evaluation();
  // schedules: cells of a pair with a budget at version 0 of a fork, where all of them are due.
  const auto budgets = static_cast<uint64_t>(evaluation.budgets_size());
  uint64_t schedules = 0;
  for (const v1::Schedule& schedule : evaluation.schedules()) {
    schedules += mostCells(kindOf(schedule), budgets, layers);
  }
  uint64_t cells = 0, answered = 0, dense = 0;  // answered: cells times their repeats
  const auto prefills = prefillsOf(evaluation);
  for (const std::string& prefill : prefills) {
    for (const std::string& method : evaluation.methods()) {
      const uint64_t more = usesBudget(prefill, method) ? schedules : 1;
      cells += more;
      answered += more * repeatsOf(experiment.spec(), prefill, method);
      if (method == kDense) dense += more;
    }
  }
  const uint64_t questions = experiment.spec().task().held_out_questions();
  const uint64_t each = chunkQuestions(evaluation);
  const uint64_t chunks = (questions + each - 1) / each;
  uint64_t units = planLayerLosses(experiment, layers).size();
  for (const Measure measure : measuresOf(evaluation)) {
    units +=
        measure == Measure::kAccuracy
            ? answered * chunks
            : (cells - dense) * std::min<uint64_t>(chunks, comparedChunks(evaluation, measure));
  }
  if (units <= kMostUnits) return {};
  return badInput(
      "spec.evaluation: " + std::to_string(evaluation.methods_size()) + " methods" +
      (prefills.size() > 1 ? " and " + std::to_string(prefills.size()) + " prefills" : "") +
      " with " + std::to_string(schedules) + " schedules and budgets each (the model has " +
      std::to_string(layers) + " layers) are " + std::to_string(cells) + " cells" +
      (answered > cells ? " in " + std::to_string(answered) + " repeats" : "") + ", times " +
      std::to_string(chunks) + " chunks of " + std::to_string(each) + " held-out questions " +
      std::to_string(units) + " units, more than " + std::to_string(kMostUnits) +
      ": take fewer budgets, schedules, methods or repeats, or lower spec.task.heldOutQuestions");
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

}  // namespace allot
