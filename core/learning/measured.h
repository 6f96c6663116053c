#pragma once
// The measured schedule: what each layer loses at each number of reads, and the schedule that loses
// least, without a graded answer.
//
// Each layer alone reads n rows a head while the others are dense, from dense attention's states.
// The loss of layer l at n reads is the mean KL divergence of the next token's distribution from
// dense attention's. It is measured at kMeasuredReads; with all rows it is 0. Losses of layers are
// taken to add up, so that the best schedule of a total is an exact dynamic programme. Bits do not
// depend on the processor (core/learning/exact_math.h). Pure; any thread.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/learning/priced_schedule.h"
#include "core/result.h"

namespace allot {

// The reads of a head at which layers are measured.
inline constexpr std::array<uint32_t, 7> kMeasuredReads = {0, 1, 2, 4, 8, 16, 32};

// Checks that the measurement has a loss for each of kMeasuredReads and each layer, in that order,
// with possible sums. kData if not.
Status checkMeasurement(const v1::Measurement& measurement, uint32_t layers);

// The losses of a measurement, smoothed: layers share a shape over the reads, from which a layer
// differs as far as its questions show it. -loss(l, n) is in the unit of a log-probability, so that
// a surrogate's prior may use it.
class LayerLosses {
 public:
  // Requires: checkMeasurement() accepts it.
  explicit LayerLosses(const v1::Measurement& measurement);

  uint32_t layers() const { return static_cast<uint32_t>(off_.size()); }
  // Returns the decode steps of an answer, in the mean; 0 if no layer has a loss.
  double stepsOfAnswer() const { return measured_ ? steps_ : 0; }
  // Returns the loss of a layer in nats a token. From 1 read on it does not rise with the reads. At
  // 0 reads it is below that at 1 only if the questions show it by two standard errors: a layer
  // that is off may do less harm than one bad draw.
  double loss(uint32_t layer, uint32_t reads) const;
  // Returns the schedule of layers with the least sum of losses; uniform if no layer has a loss.
  // Requires: layers() * min_per_layer <= total.
  SampleSchedule best(uint32_t total, uint32_t min_per_layer) const;
  // Returns the schedule of actions with the least sum of losses that `units` buy.
  // Requires: as bestWithin().
  SampleSchedule bestWithin(uint32_t units, const PriceList& prices) const;

 private:
  bool measured_ = false;    // false: no layer has a loss, as where answers have a single token
  double steps_ = 0;         // of an answer
  double slope_ = 0;         // of the log of a loss by that of the reads, beyond the last knot
  std::vector<double> off_;  // [layers] loss at 0 reads
  // [layers] Log of the loss at each of kMeasuredReads except 0.
  std::vector<std::array<double, kMeasuredReads.size() - 1>> logs_;
};

// Returns the settings that a measurement depends on, alone: model, attention, generation,
// questions and what zero reads give.
v1::Experiment measuredSettings(const v1::Spec& spec);
// Returns what names measuredSettings(): equal if these are.
std::string measurementDigest(const v1::Spec& spec);
// Returns true if a fork has the measurement of its origin and measures nothing itself. origin:
// null if the run is no fork.
bool inheritsMeasurement(const v1::Spec& spec, const v1::Origin* origin);

// Returns the measured schedule of layers at a total budget, in draws per head; nothing if the run
// has no measurement. A total that has no room for min_per_layer gets as many as it has room for.
std::optional<SampleSchedule> measuredSchedule(const v1::AggregatorState& state, uint32_t total,
                                               uint32_t min_per_layer);
// As above, from the measurement itself. prices: of the policy; empty if budgets are reads.
SampleSchedule measuredSchedule(const v1::Measurement& measurement, const PriceList& prices,
                                uint32_t total, uint32_t min_per_layer);

}  // namespace allot
