#pragma once
// Plans the evaluation grid: the cells of a policy version, cut into units for the workers. Pure,
// any thread.
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

// Names of schedules (EvaluationUnit.schedule_name), as in spec.evaluation.schedules; others are
// numbered, "oneHot-03" and "explicit-00". A method without a budget has the schedule dense or
// adaptive.
inline constexpr const char* kUniformSchedule = wordOf(ScheduleKind::kUniform).data();
inline constexpr const char* kLearnedSchedule = wordOf(ScheduleKind::kLearned).data();
inline constexpr const char* kDenseSchedule = "dense";
inline constexpr const char* kAdaptiveSchedule = "adaptive";

// Return how many chunks and held-out questions `measure` covers: its parameter `questions`, in
// whole chunks from the first on. The chunks may be more than there are.
// Requires: measure is fidelity or variance.
uint32_t comparedChunks(const v1::Evaluation& evaluation, Measure measure);
uint32_t comparedQuestions(const v1::Spec& spec, Measure measure);

// Returns true if evaluation is due once `version` is published.
bool evaluationDue(const v1::Experiment& experiment, uint64_t version);

// Returns the units of `policy`'s version: one for each cell, measure, chunk of questions
// (comparedChunks) and, for accuracy, repeat. A pair of methods (for prompts and for answers)
// without a budget (kernels::usesBudget) has one cell and no schedule. Its name is dense if both
// phases are dense, else adaptive. Answers by dense have no units of fidelity and variance, which
// are measured against them. Cells that do not depend on the policy (dense, adaptive, uniform,
// oneHot, explicit) are planned at version 0 only. Learned cells are planned at any version, but at
// version 0 only if the policy is not uniform there (a fork's).
std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy);

// Most units in one plan: the store and its server iterate over all of them.
constexpr uint64_t kMostUnits = 200'000;

// Returns kUsage, with the calculation, if a plan of this experiment may have more than kMostUnits.
Status checkGrid(const v1::Experiment& experiment, uint32_t layers);

// Returns the policy version in a unit's id; nothing if the id does not begin as in "v000025/".
std::optional<uint64_t> versionOfUnit(const std::string& unit_id);

}  // namespace allot
