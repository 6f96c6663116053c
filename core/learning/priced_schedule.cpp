#include "core/learning/priced_schedule.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace allot {

PriceList pricesOf(const v1::PolicySnapshot& policy) {
  const v1::Prices& stored = policy.prices();
  PriceList list;
  for (int i = 0; i < std::min(stored.reads_size(), stored.prices_size()); ++i) {
    list.push_back({stored.reads(i), stored.prices(i)});
  }
  return list;
}

void setPrices(const PriceList& prices, v1::PolicySnapshot* policy) {
  policy->clear_prices();
  for (const auto& [reads, price] : prices) {
    policy->mutable_prices()->add_reads(reads);
    policy->mutable_prices()->add_prices(price);
  }
}

std::optional<uint64_t> priceOf(const SampleSchedule& schedule, const PriceList& prices) {
  uint64_t sum = 0;
  for (const uint32_t reads : schedule) {
    const auto at = std::find_if(prices.begin(), prices.end(),
                                 [&](const Action& action) { return action.reads == reads; });
    if (at == prices.end()) return std::nullopt;
    sum += at->price;
  }
  return sum;
}

std::optional<SampleSchedule> uniformWithin(uint32_t units, uint32_t layers,
                                            const PriceList& prices) {
  std::optional<SampleSchedule> dearest;
  for (const auto& [reads, price] : prices) {
    if (reads > 0 && uint64_t{price} * layers <= units) dearest = SampleSchedule(layers, reads);
  }
  return dearest;
}

SampleSchedule bestWithin(uint32_t units, uint32_t layers, const PriceList& prices,
                          const std::function<double(uint32_t layer, size_t action)>& value) {
  assert(layers > 0 && !prices.empty() && uint64_t{layers} * leastPrice(prices) <= units);
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  // best[u]: largest sum of the layers so far for u units or fewer; taken[l][u]: action of layer l.
  std::vector<double> best(units + 1, 0.0), before, worth(prices.size());
  std::vector<std::vector<uint8_t>> taken(layers, std::vector<uint8_t>(units + 1));
  for (uint32_t l = 0; l < layers; ++l) {
    for (size_t a = 0; a < prices.size(); ++a) worth[a] = value(l, a);
    before = best;
    for (uint32_t u = 0; u <= units; ++u) {
      best[u] = kNever;
      for (size_t a = 0; a < prices.size(); ++a) {
        if (prices[a].price > u) continue;
        const double sum = before[u - prices[a].price] + worth[a];
        if (sum > best[u]) {
          best[u] = sum;
          taken[l][u] = static_cast<uint8_t>(a);
        }
      }
    }
  }
  SampleSchedule schedule(layers);
  uint32_t left = units;
  for (uint32_t l = layers; l-- > 0;) {
    const Action& action = prices[taken[l][left]];
    schedule[l] = action.reads;
    left -= action.price;
  }
  return schedule;
}

std::optional<SampleSchedule> uniformOf(const v1::PolicySnapshot& policy, uint32_t total) {
  const auto layers = static_cast<uint32_t>(policy.logits_size());
  if (!policy.has_prices()) return uniformSchedule(total, layers);
  return uniformWithin(unitsOf(total, layers), layers, pricesOf(policy));
}

}  // namespace allot
