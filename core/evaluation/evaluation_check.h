#pragma once
// Validates results of evaluation units, before tables, files and pictures use their numbers. Pure
// functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/spec/choices.h"

namespace allot {

// The limits of a result by its experiment. For a member that is 0 or nothing, only the limits that
// all experiments share apply.
struct EvaluationBounds {
  uint32_t tasks = 0;
  uint32_t layers = 0;
  std::optional<AgreementLayers> agreement = std::nullopt;
  uint32_t replicates = 0;  // the exact number in a unit of variance
};

EvaluationBounds boundsOf(const v1::Experiment& experiment, uint32_t layers);

// Returns nothing if the result is possible. Else returns the end of a sentence that begins with
// the unit's name, as in "has scores that cannot be". A unit of fidelity or variance has
// FidelityCells and no scores, a unit of accuracy has scores and no FidelityCells, and a unit of
// layer-loss has AgreementCells of single layers alone.
std::optional<std::string> whyImpossible(const v1::EvaluationResult& result,
                                         const EvaluationBounds& bounds);

}  // namespace allot
