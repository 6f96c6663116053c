#pragma once
// The evaluation grid: which cells are due at a policy version, cut into units for the workers.
// Pure, any thread.
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

// Names of schedules (EvaluationUnit.schedule_name), as of spec.evaluation.schedules; the others
// are numbered, "oneHot-03" and "explicit-00". Of a method that reads what it needs: dense, or else
// adaptive.
inline constexpr const char* kUniformSchedule = wordOf(ScheduleKind::kUniform).data();
inline constexpr const char* kLearnedSchedule = wordOf(ScheduleKind::kLearned).data();
inline constexpr const char* kDenseSchedule = "dense";
inline constexpr const char* kAdaptiveSchedule = "adaptive";

// Fidelity and variance are measured on as many held-out questions as their parameter `questions`
// says, in whole chunks from the first on. Requires: `measure` is one of them.
uint32_t comparedChunks(const v1::Evaluation& evaluation, Measure measure);
uint32_t comparedQuestions(const v1::Spec& spec, Measure measure);

// True if evaluation is due once `version` is published.
bool evaluationDue(const v1::Experiment& experiment, uint64_t version);

// The units due at `policy`'s version: one for each cell, measure, chunk of questions and, of
// accuracy, repeat. A pair of methods, for prompts and answers, that read what they need
// (kernels::usesBudget) has one cell, with no schedule (dense in both phases under the name dense,
// others under the name adaptive); and answers by dense, which fidelity and variance are measured
// against, have none of those. Cells that no policy changes (dense, adaptive, uniform, oneHot,
// explicit) are due at version 0 only; learned ones at every due version, but at 0 only if the
// policy is not uniform there (a fork's).
std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy);

// Units in one plan at most: the store and its server go through lists of them.
constexpr uint64_t kMostUnits = 200'000;

// Whether the largest plan of this experiment is small enough; the error has its arithmetic.
Status checkGrid(const v1::Experiment& experiment, uint32_t layers);

// The policy version in a unit's id; nothing if it is no id of planEvaluation's.
std::optional<uint64_t> versionOfUnit(const std::string& unit_id);

}  // namespace allot
