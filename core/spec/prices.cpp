#include "core/spec/prices.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/step_times.h"

namespace allot {
namespace {

// Keys that a head without reads attends to (spec.policy.zeroReads: window).
constexpr uint64_t kWindow = 64;

uint64_t bytesOf(KvDtype dtype) {
  return dtype == KvDtype::kFloat32 ? 4 : dtype == KvDtype::kFp8 ? 1 : 2;
}

// Returns a price that is `part` of dense attention's, `whole`.
uint32_t unitsFor(uint64_t part, uint64_t whole) {
  return static_cast<uint32_t>((part * kPriceUnits + whole - 1) / whole);
}

// Returns the next number of reads of the ladder.
uint32_t above(uint32_t reads) { return reads + std::max(1u, std::bit_floor(reads) / 2); }

PriceList pricesInTime(const v1::Policy& policy) {
  // In a damaged store the text may be none.
  const auto times = parseStepTimes(policy.step_times(), kStepTimesKey);
  if (!times) return {};
  PriceList list;
  if (policy.min_per_layer() == 0) list.push_back({0, 0});
  for (uint32_t reads = 1; reads <= times->of.back().first; reads = above(reads)) {
    if (reads < times->of.front().first || reads < policy.min_per_layer()) continue;
    const double units = std::ceil(times->at(reads) / times->dense * kPriceUnits);
    if (units >= kPriceUnits) break;
    list.push_back({reads, static_cast<uint32_t>(units)});
  }
  return list;
}

PriceList pricesInBytes(const v1::Spec& spec, const ModelShape& shape,
                        const kernels::MethodOptions& method) {
  kernels::StepShape step;
  // 0 in a damaged store.
  step.keys = std::max(1u, spec.task().context_tokens());
  step.group = std::max(1u, shape.heads / std::max(1u, shape.kv_heads));
  step.head_dim = std::max(1u, shape.head_dim);
  step.element_bytes = bytesOf(kvDtypeOf(spec.model()));
  const uint64_t row = 2 * step.head_dim * step.element_bytes, dense = step.keys * row;
  const uint32_t least = spec.policy().min_per_layer();
  PriceList list;
  if (least == 0) {
    const bool window = zeroReadsOf(spec.policy()) == ZeroReadsChoice::kWindow;
    list.push_back({0, window ? unitsFor(std::min(kWindow, step.keys) * row, dense) : 0});
  }
  for (uint32_t reads = 1; reads < kAllRows; reads = above(reads)) {
    const uint32_t price = unitsFor(kernels::mostBytes(method, step, reads).value_or(dense), dense);
    if (price >= kPriceUnits) break;
    if (reads >= least) list.push_back({reads, price});
  }
  return list;
}

}  // namespace

uint32_t leastPrice(const PriceList& prices) {
  uint32_t least = prices.front().price;
  for (const Action& action : prices) least = std::min(least, action.price);
  return least;
}

bool isAffordable(uint32_t share, uint32_t layers, const PriceList& prices) {
  constexpr size_t kMostActions = 64;  // a ladder up to kAllRows has 40
  return share <= 100 && !prices.empty() && prices.size() <= kMostActions &&
         uint64_t{leastPrice(prices)} * layers <= unitsOf(share, layers);
}

PriceList priceListOf(const v1::Spec& spec, const ModelShape& shape) {
  if (!hasPrices(spec.policy())) return {};
  kernels::MethodOptions method;
  kernels::parseMethod(spec.attention().decode(), &method);
  PriceList list = priceOf(spec.policy()) == Price::kTime ? pricesInTime(spec.policy())
                                                          : pricesInBytes(spec, shape, method);
  if (kernels::exactFromAllKeys(method)) list.push_back({kAllRows, kPriceUnits});
  return list;
}

}  // namespace allot
