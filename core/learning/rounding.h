#pragma once
// RoundingRule: an update that was computed on another processor, told from one that was falsified.
//
// libm's exp and log round by processor, so a run whose updates were computed with them (see
// kArithmetic) may differ from its replay in the last bits. What differs by no more than that is
// taken over from the record, so that the next update starts from what was recorded and roundings
// do not add up; anything else is left alone, and the comparison that follows finds it. Numbers
// that no exp or log enters are never taken over. One thread.
#include <cstdint>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/update.h"

namespace allot {

// What was found so far.
struct Rounding {
  uint64_t updates = 0;  // that differ by rounding alone
  // The largest difference, in units of 2^-52 of the number, or of 1 where that is larger: sums
  // that cancel are as precise as what they are made of.
  double most_ulps = 0;

  bool differs() const { return most_ulps > 0; }
};

class RoundingRule {
 public:
  // `computed` came of `experiment` (with the settings of `recorded`) and `before`, a state whose
  // logits are the recorded ones.
  void takeOver(const v1::Experiment& experiment, const v1::AggregatorState& before,
                const v1::IterationRecord& recorded, UpdateOutcome* computed);
  // The optimiser's moments, which no record holds, at the end.
  void takeOver(const v1::AggregatorState& recorded, v1::AggregatorState* computed);

  const Rounding& found() const { return found_; }

 private:
  void near(double recorded, double scale, double* computed);
  void nearAll(const google::protobuf::RepeatedField<double>& recorded, double scale,
               google::protobuf::RepeatedField<double>* computed);

  // How many times the rounding of one exp or log a gradient's components may be off: the largest
  // so far, because the moments remember it.
  double gradient_scale_ = 1;
  Rounding found_;
};

}  // namespace allot
