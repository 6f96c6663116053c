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
  // Of fidelity and variance:
  uint32_t questions = 64;  // held-out questions, rounded up to whole chunks
  uint32_t tile = 32;  // keys in a tile; errors are grouped by how many tiles hold 90 % of the mass
  AgreementLayers agreement = AgreementLayers::kAll;  // of fidelity
  uint32_t replicates = 16;                           // of variance, >= 2

  bool operator==(const MeasureOptions&) const = default;
};

// Parses a text form into `options` and returns nothing. If the text is malformed, leaves `options`
// unchanged and returns the end of a sentence that says what is wrong.
std::optional<std::string> parseMeasure(std::string_view text, MeasureOptions* options);
// Returns the shortest text that parses to these options.
std::string measureText(const MeasureOptions& options);

// Returns the options of a measure in this experiment; the defaults if the experiment lacks that
// measure.
MeasureOptions measureOptions(const v1::Evaluation& evaluation, Measure measure);

}  // namespace allot
