#pragma once
// The measures of spec.evaluation.measures with their parameters, as in "fidelity tile=256
// agreement=last-layer". Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allot/v1/experiment.pb.h"
#include "core/spec/choices.h"

namespace allot {

struct MeasureOptions {
  Measure measure = Measure::kAccuracy;
  // Of fidelity and variance: held-out questions, in whole chunks from the first on, and keys in a
  // tile, where errors are told apart by how many tiles hold 90 % of the attention.
  uint32_t questions = 64;
  uint32_t tile = 32;
  AgreementLayers agreement = AgreementLayers::kAll;  // of fidelity
  uint32_t replicates = 16;                           // of variance, >= 2

  bool operator==(const MeasureOptions&) const = default;
};

// Reads a text form. Returns nothing if all is well; else one sentence that says what is wrong and
// what is allowed, and `options` is as it was.
std::optional<std::string> parseMeasure(std::string_view text, MeasureOptions* options);
// Returns the shortest text that parses to these options.
std::string measureText(const MeasureOptions& options);

// Returns the options that the experiment has for a measure; the defaults if it is not measured.
MeasureOptions measureOptions(const v1::Evaluation& evaluation, Measure measure);

}  // namespace allot
