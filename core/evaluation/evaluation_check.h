#pragma once
// Validates evaluations from workers, before their numbers go into tables, files and pictures. Pure
// functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/spec/choices.h"

namespace allot {

// The limits of a result. 0 or nothing: unknown, and only the limits of every experiment apply.
struct EvaluationBounds {
  uint32_t tasks = 0;
  uint32_t layers = 0;
  std::optional<AgreementLayers> agreement = std::nullopt;
  uint32_t replicates = 0;  // exactly, of a unit of variance
};

EvaluationBounds boundsOf(const v1::Experiment& experiment, uint32_t layers);

// Returns nothing if the result is possible. Else returns the end of a sentence that begins with
// the unit's name, as in "has scores that cannot be". A unit of fidelity or variance has cells and
// no scores, any other has scores and no cells.
std::optional<std::string> whyImpossible(const v1::EvaluationResult& result,
                                         const EvaluationBounds& bounds);

}  // namespace allot
