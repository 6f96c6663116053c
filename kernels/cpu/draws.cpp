#include "kernels/cpu/draws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/key_scores.h"

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

void independentThresholds(const Head& head, uint64_t total, uint32_t samples,
                           uint64_t* thresholds) {
  std::array<uint32_t, 4> words{};
  for (uint32_t m = 0; m < samples; ++m) {
    if (m % 2 == 0) words = head.random(m / 2);
    const uint64_t random = static_cast<uint64_t>(words[m % 2 * 2]) << 32 | words[m % 2 * 2 + 1];
    thresholds[m] = static_cast<uint64_t>(static_cast<Wide>(random) * total >> 64);
  }
  std::sort(thresholds, thresholds + samples);
}

void stratifiedThresholds(const Head& head, uint64_t total, uint32_t samples,
                          uint64_t* thresholds) {
  const uint64_t divisor = static_cast<uint64_t>(samples) << 32;
  std::array<uint32_t, 4> words{};
  for (uint32_t m = 0; m < samples; ++m) {
    if (m % 4 == 0) words = head.random(m / 4);
    const Wide place = (static_cast<uint64_t>(m) << 32) | words[m % 4];
    thresholds[m] = static_cast<uint64_t>(place * total / divisor);
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

void scoreDrawn(const Head& head, Selection* selection) {
  const auto& rows = selection->rows;
  auto& scores = selection->buffer;
  scores.resize(rows.size());
  const KeyRange keys{head.kv, head.pages, head.kv_head, head.n, head.first};
  exactScoresOf(keys, head.query, head.scale, rows.data(), static_cast<int>(rows.size()),
                scores.data());
  for (size_t i = 0; head.bias && i < rows.size(); ++i) scores[i] += head.bias[rows[i]];
  selection->key_rows += rows.size();
}

double exactLse(const Head& head, Selection* selection) {
  auto& scores = selection->buffer;
  scores.resize(static_cast<size_t>(head.n));
  exactScores({head.kv, head.pages, head.kv_head, head.n, head.first}, head.query, 1, head.scale,
              scores.data(), head.n);
  float top = -std::numeric_limits<float>::infinity();
  for (int j = head.first; j < head.n; ++j) {
    if (head.bias) scores[j] += head.bias[j];
    top = std::max(top, scores[j]);
  }
  double total = 0;
  for (int j = head.first; j < head.n; ++j) total += std::exp(static_cast<double>(scores[j]) - top);
  return top + std::log(total);
}

}  // namespace allot::kernels
