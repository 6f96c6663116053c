// Systematic sampling from per-tile weights, as a GPU does it (SANTA paper, Section 3.2, but not
// its rounding). With C_t = S times the share of weight in tiles 0..t, tile t makes floor(C_t + u)
// - floor(C_{t-1} + u) draws and continues the count inside. A tile needs its own weights and one
// prefix sum over tiles, and the draws are those of global systematic sampling.
//
// The paper's own rule is rounding=largest-remainder (Algorithms 2 to 5). With W_t the weight of
// tile t, Z that of all, q_t = S W_t / Z:
//   S_t = floor(q_t), and one more for the S - sum floor(q_t) tiles of the largest q_t -
//   floor(q_t); tile t makes S_t systematic draws with an offset of its own, c_n = floor(a_t + p +
//   x_n) - floor(a_t + p), x_n = S_t w_n / W_t, p the sum of x before n; out = sum c_n V_n / S.
// Tile t has the weight S_t / S whatever the offsets, which differs from W_t / Z by less than 1 / S
// and is never put right: that estimator is biased (kernels/README.md has figures), and its error
// cannot be told from its draws. Of equal remainders the older tile's goes first; the paper leaves
// that open.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/draws.h"

namespace allot::kernels {
namespace {

struct Tile {
  int first, last;  // keys first..last-1
  uint64_t weight;
};

// Returns the head's keys of t size .. (t + 1) size - 1.
Tile tileOf(const Head& head, int size, int t) {
  const int first = std::max(t * size, head.first), last = std::min(t * size + size, head.n);
  return {first, last, std::accumulate(head.weights + first, head.weights + last, uint64_t{0})};
}

// A tile's certain draws, floor(S W_t / Z), and the remainder in units of 1 / Z.
struct Quota {
  uint32_t draws;
  uint64_t remainder;
};
Quota quotaOf(const Head& head, const Tile& tile) {
  __extension__ using Wide = unsigned __int128;
  const Wide share = static_cast<Wide>(tile.weight) * head.budget;
  return {static_cast<uint32_t>(share / head.weight_total),
          static_cast<uint64_t>(share % head.weight_total)};
}

void selectByLargestRemainder(const Head& head, int size, int begin, int end,
                              Selection* selection) {
  auto& remainders = selection->thresholds;  // by tile, until draws are made
  auto& order = selection->order;            // tiles
  remainders.clear();
  uint32_t left = head.budget;
  for (int t = begin; t < end; ++t) {
    const Quota quota = quotaOf(head, tileOf(head, size, t));
    remainders.push_back(quota.remainder);
    left -= quota.draws;
  }
  order.resize(remainders.size());
  std::iota(order.begin(), order.end(), 0);
  // `left` draws are the remainders' sum, and each is below 1: left is below the number of tiles.
  const auto raised = order.begin() + left;
  std::nth_element(order.begin(), raised, order.end(), [&](int32_t a, int32_t b) {
    return remainders[a] != remainders[b] ? remainders[a] > remainders[b] : a < b;
  });
  std::sort(order.begin(), raised);
  const float weight = 1.0f / static_cast<float>(head.budget);
  auto next = order.begin();
  for (int t = begin; t < end; ++t) {
    const Tile tile = tileOf(head, size, t);
    uint32_t draws = quotaOf(head, tile).draws;
    if (next != raised && *next == t - begin) ++next, ++draws;
    if (draws == 0) continue;
    selection->thresholds.resize(draws);
    systematicThresholds(tile.weight, draws, offsetOf(head.random(static_cast<uint32_t>(t))[0]),
                         selection->thresholds.data());
    addDrawsWithin(head, tile.first, tile.last, selection->thresholds.data(), draws, weight,
                   selection);
  }
  selection->error_known = false;
}

}  // namespace

void selectS2antaProp(const Head& head, Selection* selection) {
  const int size = tileKeys(*head.options, head.keys());
  const int begin = head.first / size, end = (head.n + size - 1) / size;
  if (head.options->largest_remainder) {
    selectByLargestRemainder(head, size, begin, end, selection);
    return;
  }
  const uint32_t samples = head.budget;
  const uint32_t offset = offsetOf(head.random(0)[0]);
  selection->thresholds.resize(samples);
  uint64_t* thresholds = selection->thresholds.data();
  systematicThresholds(head.weight_total, samples, offset, thresholds);
  const float weight = 1.0f / static_cast<float>(samples);
  uint64_t before = 0;  // weight of the tiles passed
  for (int t = begin; t < end; ++t) {
    const Tile tile = tileOf(head, size, t);
    const uint32_t from = systematicDrawsBelow(before, head.weight_total, samples, offset);
    const uint32_t to =
        systematicDrawsBelow(before + tile.weight, head.weight_total, samples, offset);
    for (uint32_t m = from; m < to; ++m) thresholds[m] -= before;
    addDrawsWithin(head, tile.first, tile.last, thresholds + from, to - from, weight, selection);
    before += tile.weight;
  }
}

}  // namespace allot::kernels
