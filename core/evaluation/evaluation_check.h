#pragma once
// Whether an evaluation that a worker sent can be: its numbers come from elsewhere and go into
// tables, files and pictures. Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/spec/choices.h"

namespace allot {

// What a result is held against; 0: not known here, and only the format's own limits count.
struct EvaluationBounds {
  uint32_t tasks = 0;
  uint32_t layers = 0;
  std::optional<AgreementLayers> agreement = std::nullopt;
  uint32_t replicates = 0;  // of a unit of variance
};

EvaluationBounds boundsOf(const v1::Experiment& experiment, uint32_t layers);

// Nothing if it can be; else the end of a sentence that begins with the unit's name, as in "has
// scores that cannot be". A unit of fidelity or variance has cells and no scores, any other
// scores and no cells.
std::optional<std::string> whyImpossible(const v1::EvaluationResult& result,
                                         const EvaluationBounds& bounds);

}  // namespace allot
