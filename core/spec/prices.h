#pragma once
// What a layer may read under spec.policy.price bytes or time, and the price of it.
//
// An action of a layer is a number of reads per head: none, one of a ladder, or all rows, which is
// dense attention. Its price in bytes is what mostBytes() (allot/kernels/method.h) says at
// spec.task.contextTokens: a draw counts as a row that no other draw of its KV head reads. Its
// price in time is that of spec.policy.stepTimes (step_times.h); a layer that is off takes none.
// Prices are integers in units of 1 / kPriceUnits of dense attention's price in one layer, rounded
// up, so that a schedule is never above its price. Pure; any thread.
#include <cstdint>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/spec/model_shape.h"
#include "core/spec/spec_rules.h"

namespace allot {

inline constexpr uint32_t kPriceUnits = 1024;  // dense attention's price in one layer
// The reads of the action that reads all rows: from n reads on, methods are exact.
inline constexpr uint32_t kAllRows = kMaxBudget;

struct Action {
  uint32_t reads = 0;  // of a head
  uint32_t price = 0;  // of the layer, in units

  bool operator==(const Action&) const = default;
};
using PriceList = std::vector<Action>;  // with rising reads

// Returns the actions of a layer: of 0, 1, 2, 3, 4, 6, 8, 12, ... reads those that are
// spec.policy.minPerLayer or more, cost less than dense attention and, if they are priced in time,
// are within the measured numbers of reads; then kAllRows, unless the method draws from any
// number of rows. Empty if budgets are reads.
// Requires: checkPrices() accepts the experiment.
PriceList priceListOf(const v1::Spec& spec, const ModelShape& shape);

// Requires: the list is not empty.
uint32_t leastPrice(const PriceList& prices);

// Returns the price that `share` per cent of dense attention's buy, in units, rounded down.
inline uint32_t unitsOf(uint32_t share, uint32_t layers) {
  return static_cast<uint32_t>(uint64_t{share} * kPriceUnits * layers / 100);
}
// Returns true if `share` per cent is a share that buys a schedule of the list, which has few
// enough actions to choose from.
bool isAffordable(uint32_t share, uint32_t layers, const PriceList& prices);
// Returns the least share that buys `units`, in per cent.
inline uint32_t shareOf(uint32_t units, uint32_t layers) {
  const uint64_t all = uint64_t{kPriceUnits} * layers;
  return static_cast<uint32_t>((uint64_t{units} * 100 + all - 1) / all);
}

}  // namespace allot
