#include "kernels/cpu/draws.h"

namespace allot::kernels {
namespace {

// A total below 2^62 times 2^24 needs more than 64 bits.
__extension__ using Wide = unsigned __int128;

// Adds key j if thresholds from *next on are below its prefix sum, and moves *next behind them.
void addKey(int j, uint64_t prefix, const uint64_t* thresholds, uint32_t count,
            float weight_per_draw, uint32_t* next, Selection* selection) {
  const uint32_t first = *next;
  while (*next < count && thresholds[*next] < prefix) ++*next;
  const uint32_t draws = *next - first;
  if (draws > 0) selection->add(j, static_cast<float>(draws) * weight_per_draw, draws);
}

}  // namespace

void systematicThresholds(uint64_t total, uint32_t samples, uint32_t offset, uint64_t* thresholds) {
  // Draw m is the first key whose prefix P satisfies S P / total + u >= m + 1, that is
  // P > floor((((m + 1) 2^24 - offset) total - 1) / (S 2^24)). Stepped without a division: total /
  // S at a time, the remainders carried.
  const uint64_t divisor = static_cast<uint64_t>(samples) << kOffsetBits;
  const Wide first = static_cast<Wide>((uint64_t{1} << kOffsetBits) - offset) * total - 1;
  uint64_t threshold = static_cast<uint64_t>(first / divisor);
  uint64_t remainder = static_cast<uint64_t>(first % divisor);
  const uint64_t step = total / samples;
  const uint64_t step_remainder = (total % samples) << kOffsetBits;
  for (uint32_t m = 0; m < samples; ++m) {
    thresholds[m] = threshold;
    threshold += step;
    remainder += step_remainder;
    if (remainder >= divisor) {
      remainder -= divisor;
      ++threshold;
    }
  }
}

void addDraws(const Head& head, const uint64_t* thresholds, uint32_t count, float weight_per_draw,
              Selection* selection) {
  uint64_t prefix = 0;
  uint32_t next = 0;
  for (int block = head.first / kBlock; next < count; ++block) {
    const uint64_t end = prefix + head.block_weights[block];
    if (thresholds[next] < end) {
      uint64_t reached = prefix;
      for (int j = block * kBlock; next < count && thresholds[next] < end; ++j) {
        reached += head.weights[j];
        addKey(j, reached, thresholds, count, weight_per_draw, &next, selection);
      }
    }
    prefix = end;
  }
  selection->draws += count;
}

void addDrawsWithin(const Head& head, int first, int last, const uint64_t* thresholds,
                    uint32_t count, float weight_per_draw, Selection* selection) {
  uint64_t reached = 0;
  uint32_t next = 0;
  for (int j = first; j < last && next < count; ++j) {
    reached += head.weights[j];
    addKey(j, reached, thresholds, count, weight_per_draw, &next, selection);
  }
  selection->draws += count;
}

}  // namespace allot::kernels
