#pragma once
// Plans the evaluation grid of a policy version: cells (methods, schedule, total budget), cut into
// units for the workers. Pure, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/choices.h"

namespace allot {

// Names of schedules (EvaluationUnit.schedule_name). Those of oneHot schedules have the layer's
// number ("oneHot-03"), and its reads if these are not 1 ("oneHot-03-reads-0"); those of explicit
// ones a running number ("explicit-00"). Cells without a budget have the name dense or adaptive.
inline constexpr const char* kUniformSchedule = wordOf(ScheduleKind::kUniform).data();
inline constexpr const char* kLearnedSchedule = wordOf(ScheduleKind::kLearned).data();
inline constexpr const char* kMeasuredSchedule = wordOf(ScheduleKind::kMeasured).data();
inline constexpr const char* kDenseSchedule = "dense";
inline constexpr const char* kAdaptiveSchedule = "adaptive";

// Return the chunks, and the held-out questions, that `measure` covers from the first on: its
// parameter `questions`, rounded up to whole chunks. comparedChunks() may exceed the chunks of the
// held-out set.
// Requires: measure is fidelity or variance.
uint32_t comparedChunks(const v1::Evaluation& evaluation, Measure measure);
uint32_t comparedQuestions(const v1::Spec& spec, Measure measure);

// The measurement of a run's layers, as far as it is known.
struct Measuring {
  const v1::Measurement* result = nullptr;  // null: not measured, or not all layers yet
  bool inherited = false;                   // a fork has it from its origin, and measures nothing
};
Measuring measuringOf(const v1::Experiment& experiment, const v1::AggregatorState& state,
                      const v1::Origin* origin);

// Returns the units of measure layer-loss, of version 0: every layer alone at each of
// kMeasuredReads, on the first spec.policy.measureQuestions training questions. Their chunks are
// numbered after those of the held-out questions. Empty if layers are not measured.
std::vector<v1::EvaluationUnit> planLayerLosses(const v1::Experiment& experiment, uint32_t layers);

// Returns true if evaluation is due once `version` is published.
bool evaluationDue(const v1::Experiment& experiment, uint64_t version);

// Returns the units of `policy`'s version: one for each cell, measure, chunk that the measure
// covers and, for accuracy, repeat. A pair of methods (for prompts and for answers), neither of
// which has a budget (kernels::usesBudget), has one cell, without a schedule. That cell's schedule
// name is dense if both methods are dense, else adaptive. Pairs with dense answers have no units of
// fidelity and variance: dense is the reference. Cells that do not depend on the policy (dense,
// adaptive, uniform, oneHot, measured, explicit) are planned at version 0 only. Learned cells are
// planned at every version except 0, and at 0 if a fork begins with a policy that is not uniform.
// A price that buys no uniform schedule has no uniform cell. Measured cells are planned once
// `measuring` has its result. The units of planLayerLosses() come
// first, unless the measurement is inherited.
std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy,
                                               const Measuring& measuring = {});

// Returns the name of the unit's cell and measure in its id, as in "s2anta-flash/uniform/128" or
// "s2anta-flash/uniform/128/variance": the same for all chunks, repeats and versions.
std::string cellOf(const v1::EvaluationUnit& unit);

// Most units in one plan. The store's client and its server iterate over all units of a plan.
constexpr uint64_t kMostUnits = 200'000;

// Returns kUsage, with the calculation, if a plan of this experiment may have more than kMostUnits.
Status checkGrid(const v1::Experiment& experiment, uint32_t layers);

// Returns the policy version in a unit's id; nothing if the id does not begin as in "v000025/".
std::optional<uint64_t> versionOfUnit(const std::string& unit_id);

}  // namespace allot
