#include "core/learning/questions.h"

#include <cassert>
#include <numeric>
#include <utility>

namespace allot {

std::vector<uint32_t> episodeQuestions(const RunStreams& streams, uint64_t ticket, uint32_t count,
                                       uint32_t available) {
  assert(count > 0 && count <= available);
  const uint64_t episodes_per_epoch = available / count;
  const uint64_t epoch = ticket / episodes_per_epoch;
  const uint64_t place = ticket % episodes_per_epoch;
  std::vector<uint32_t> order(available);
  std::iota(order.begin(), order.end(), 0u);
  RandomStream random(streams, Purpose::kQuestions, epoch);
  // Fisher-Yates from the front, as far as this episode reaches.
  const uint64_t end = (place + 1) * count;
  for (uint64_t i = 0; i < end; ++i) std::swap(order[i], order[i + random.below(available - i)]);
  return {order.begin() + static_cast<std::ptrdiff_t>(place * count),
          order.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace allot
