#pragma once
// Schedules within a price (spec.policy.price): each layer has one action of a price list.
//
// A total budget is then a share of dense attention's price, in per cent. The list stands in the
// policy, so that its readers know what its budgets buy. Pure; any thread.
#include <cstdint>
#include <functional>
#include <optional>

#include "allot/v1/policy.pb.h"
#include "core/learning/schedule.h"
#include "core/spec/prices.h"

namespace allot {

// Returns the policy's price list; empty if its budgets are reads.
PriceList pricesOf(const v1::PolicySnapshot& policy);
void setPrices(const PriceList& prices, v1::PolicySnapshot* policy);

// Returns the price of a schedule in units; nothing if an entry is no action.
std::optional<uint64_t> priceOf(const SampleSchedule& schedule, const PriceList& prices);

// Returns the dearest schedule with one action in all layers that `units` buy; nothing if they buy
// none, or none but that of all layers without reads.
std::optional<SampleSchedule> uniformWithin(uint32_t units, uint32_t layers,
                                            const PriceList& prices);

// Returns the schedule with the largest sum of value(layer, action) that `units` buy, by an exact
// dynamic programme (a multiple-choice knapsack) of layers * actions * units steps. Ties go to the
// earlier action in the later layer. `value` is called once for each layer and action, by the
// action's place in the list.
// Requires: layers > 0 and layers * leastPrice(prices) <= units.
SampleSchedule bestWithin(uint32_t units, uint32_t layers, const PriceList& prices,
                          const std::function<double(uint32_t layer, size_t action)>& value);

// Returns the uniform schedule of layers at a total budget: uniformSchedule() or, with prices,
// uniformWithin(). Nothing if the budget buys none: candidates are then held against the measured
// schedule.
std::optional<SampleSchedule> uniformOf(const v1::PolicySnapshot& policy, uint32_t total);

}  // namespace allot
