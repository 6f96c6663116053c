// Draws tile by tile on the GPU, where tiles are no splits (s2anta-flash) or share out draws by
// largest remainders (s2anta-prop): how many draws each tile makes, beside the CPU.
#include <cmath>
#include <map>

#include "tests/gpu/reference.h"

namespace allot::kernels {
namespace {

using Tiles = GpuTest;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 3, 2},
    {Element::kBFloat16, 128, 64, 4, 1},
    {Element::kFloat16, 128, 256, 8, 1},
};

std::map<int, int> drawsOfTiles(const std::vector<uint32_t>& counts, int tile) {
  std::map<int, int> draws;
  for (size_t j = 0; j < counts.size(); ++j) {
    if (counts[j] > 0) draws[static_cast<int>(j) / tile] += static_cast<int>(counts[j]);
  }
  return draws;
}

// Any scores: a tile's draws are the CPU's but for tiles whose remainders are nearly the last's.
TEST_F(Tiles, SharesOfDrawsAreTheCpus) {
  for (const char* text :
       {"s2anta-flash tileSize=32", "s2anta-flash tileSize=64", "s2anta-flash tileSize=auto",
        "s2anta-flash tileSize=128 exactAbove=never", "s2anta-flash exactAbove=never",
        "s2anta-prop rounding=largest-remainder",
        "s2anta-prop tileSize=32 rounding=largest-remainder",
        "s2anta-prop tileSize=auto rounding=largest-remainder exactAbove=never"}) {
    const MethodOptions method = methodOf(text);
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(text) + ", " + textOf(layout));
      Cache cache = hostCache(layout, {31, 33, 256, 257, 1000, 1537, 3100, 9000}, 81);
      int tiles = 0, moved = 0;
      for (const uint32_t budget : {1u, 24u, 200u, 2000u}) {
        std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
        Gpu gpu(cache, layout.element);
        const GpuResult run = gpu.run(method);
        expectFollowsDraws(cache, run, method, layout.element);
        for (int r = 0; r < cache.rows(); ++r) {
          if (!draws(method, cache.shape, cache.lengths[r], budget)) continue;
          const int n = cache.lengths[r], tile = tileKeys(method, n);
          for (int h = 0; h < cache.shape.heads; ++h) {
            const HeadDraws& drawn = run.draws[r * cache.shape.heads + h];
            auto gpus = drawsOfTiles(countsOf(drawn, n), tile);
            auto cpus = drawsOfTiles(countsOf(cpuSelection(method, cache, r, h), n), tile);
            for (int t = 0; t * tile < n; ++t) {
              ASSERT_LE(std::abs(gpus[t] - cpus[t]), 1) << "n " << n << ", tile " << t;
              moved += gpus[t] != cpus[t];
              ++tiles;
            }
          }
        }
        if (HasFailure()) return;
      }
      // Flash's are the same number in every tile.
      EXPECT_LE(moved, method.largest_remainder ? 0.02 * tiles : 0);
    }
  }
}

// As many draws as keys, and more: each key as often as its probability says, and the one between.
TEST_F(Tiles, DrawsMayBeMoreThanKeys) {
  for (const char* text :
       {"santa exactAbove=never", "s2anta-sys exactAbove=never", "s2anta-strat exactAbove=never",
        "s2anta-q4 exactAbove=never", "s2anta-flash tileSize=32 exactAbove=never"}) {
    const MethodOptions method = methodOf(text);
    const Layout layout = kLayouts[0];
    SCOPED_TRACE(text);
    Cache cache = hostCache(layout, {1, 40, 300}, 82);
    cache.budgets = {5, 40, 20000};
    Gpu gpu(cache, layout.element);
    const GpuResult run = gpu.run(method);
    expectFollowsDraws(cache, run, method, layout.element);
    const bool even = method.method == Method::kS2antaSys;
    for (int h = 0; h < cache.shape.heads; ++h) {
      const HeadDraws& drawn = run.draws[2 * cache.shape.heads + h];
      EXPECT_GE(drawn.keys.size(), 19000u);
      const auto counts = countsOf(drawn, 300);
      const std::vector<double> a = cache.probabilities(2, h);
      for (int j = 0; even && j < 300; ++j) {
        ASSERT_NEAR(counts[j], 20000 * a[j], 1.01 + 20000 * a[j] * 0x1p-10);
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
