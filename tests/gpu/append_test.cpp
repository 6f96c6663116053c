// Keys and values written on the GPU: the cache holds what kernels::appendKv makes of them, to the
// bit, also where nothing was written.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/gpu/append_pools.h"

namespace allot::kernels {
namespace {

using ::testing::HasSubstr;

const Layout kLayouts[] = {
    {Element::kBFloat16, 64, 16, 1, 2},  {Element::kBFloat16, 128, 64, 4, 3},
    {Element::kBFloat16, 64, 256, 2, 1}, {Element::kFloat16, 64, 64, 8, 2},
    {Element::kFloat16, 128, 16, 3, 1},  {Element::kFloat16, 128, 256, 7, 2},
};

using Append = GpuTest;

TEST_F(Append, HoldsWhatTheCpuHolds) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    for (const int first : {1, 15, 37, 300}) {
      SCOPED_TRACE("first chunk of " + std::to_string(first));
      Pools pools(layout, 3, 400, 41);
      std::vector<int32_t> starts(3, 0);
      pools.expectBothSides(starts, first, 42);
      for (int step = 0; step < 20; ++step) {  // one by one, over the end of a page
        for (int32_t& start : starts) start = first + step;
        pools.expectBothSides(starts, 1, 43 + 2 * step);
        if (HasFailure()) return;
      }
      for (int32_t& start : starts) start = first + 20;
      pools.expectBothSides(starts, 33, 91);
    }
  }
}

// Rows that are at different positions, each with a first chunk of its own.
TEST_F(Append, RowsAtDifferentPositions) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Pools pools(layout, 4, 300, 44);
    std::vector<int32_t> starts(4, 0);
    pools.expectBothSides(starts, 5, 45);
    starts = {5, 0, 5, 5};  // row 1 begins again
    pools.expectBothSides(starts, 16, 46);
    starts = {21, 16, 21, 5};
    for (int step = 0; step < 18; ++step) {
      pools.expectBothSides(starts, 1, 47 + 2 * step);
      for (int32_t& start : starts) ++start;
    }
  }
}

// Equal keys have a scale of zero, tiny and large ones a small and a large one; halves round to
// even.
TEST_F(Append, KeysOfAnySpread) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    for (const float spread : {0.0f, 1e-35f, 1e-5f, 30.0f, 9000.0f}) {
      Pools pools(layout, 2, 64, 51);
      pools.expectBothSides({0, 0}, 40, 52, spread);
      pools.expectBothSides({40, 40}, 3, 53, spread);
    }
    Pools pools(layout, 1, 64, 54);
    std::vector<float> keys(32 * pools.width());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<float>(i % 29) - 14;
    for (size_t i = 0; i < keys.size(); i += 61) keys[i] = -0.0f;
    EXPECT_EQ(pools.append({0}, 32, keys, keys), "");
    pools.appendHost(0, 0, 32, keys, keys);
    pools.device.expectEqual(pools.host);
  }
}

// A cache without a shadow and without mean keys.
TEST_F(Append, NoShadow) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Pools pools(layout, 2, 64, 55);
    for (KeyShadow& shadow : pools.device.kv.shadows) shadow = {};
    for (KeyShadow& shadow : pools.host.kv.shadows) shadow = {};
    pools.device.kv.mean_keys = pools.host.kv.mean_keys = nullptr;
    pools.expectBothSides({0, 0}, 40, 56);
    pools.expectBothSides({40, 40}, 1, 57);
  }
}

TEST_F(Append, NumbersThatAreNotFiniteAreReportedAndNotWritten) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    // The least that rounds to infinity, and the most that does not.
    const bool wide = layout.element == Element::kBFloat16;
    const float least = wide ? std::bit_cast<float>(0x7f7f8000) : 65520.0f;
    const float most = wide ? std::bit_cast<float>(0x7f7f7fff) : 65519.0f;
    for (const float bad : {NAN, INFINITY, -INFINITY, least, -least}) {
      for (const bool in_keys : {true, false}) {
        SCOPED_TRACE(std::to_string(bad) + (in_keys ? " in keys" : " in values"));
        Pools pools(layout, 3, 64, 61);
        pools.expectBothSides({0, 0, 0}, 20, 62);
        auto keys = normals(3 * 2 * pools.width(), 63), values = normals(keys.size(), 64);
        const int head = layout.kv_heads - 1;
        // Row 1, position 21, the last KV head.
        (in_keys ? keys : values)[3 * pools.width() + head * layout.head_dim + 17] = bad;
        const std::string failure = pools.append({20, 20, 20}, 2, keys, values);
        EXPECT_THAT(failure, HasSubstr("row 1"));
        EXPECT_THAT(failure, HasSubstr("KV head " + std::to_string(head)));
        for (const int r : {0, 2}) pools.appendHost(r, 20, 2, keys, values);
        const auto pool = (in_keys ? pools.device.keys : pools.device.values).host();
        for (int r = 0; r < 3; ++r) {
          const int64_t at = pools.offset(r, head, 21);
          const auto expected =
              bytesAs(layout.element, pools.host, in_keys ? pools.host.keys : pools.host.values);
          EXPECT_EQ(std::memcmp(&pool[at * 2], &expected[at * 2], layout.head_dim * 2), 0)
              << "row " << r;
        }
        // Once told, all is well again.
        EXPECT_EQ(pools.workspace.failure(pools.stream), std::nullopt);
        if (HasFailure()) return;
      }
    }
    Pools pools(layout, 1, 64, 65);
    const std::vector<float> large(pools.width(), most);
    EXPECT_EQ(pools.append({0}, 1, large, large), "");
    pools.appendHost(0, 0, 1, large, large);
    pools.device.expectEqual(pools.host);
  }
}

TEST_F(Append, PlacesOutsideThePoolAreReportedAndNotWritten) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    for (int what = 0; what < 4; ++what) {
      SCOPED_TRACE(what);
      Pools pools(layout, 3, 64, 71);
      pools.expectBothSides({0, 0, 0}, 20, 72);
      const auto keys = normals(3 * 2 * pools.width(), 73), values = normals(keys.size(), 74);
      std::vector<int32_t> starts = {20, 20, 20};
      const int room = pools.maxPages() * layout.page_size;
      int32_t& page = pools.table[pools.maxPages() + 20 / layout.page_size];
      const int32_t good = page;
      if (what == 0) starts[1] = -1;
      if (what == 1) starts[1] = room - 1;  // its second key is beyond
      if (what == 2) page = -1;
      if (what == 3) page = static_cast<int32_t>(pools.host.kv.pages);
      EXPECT_THAT(pools.append(starts, 2, keys, values), HasSubstr("row 1"));
      page = good;
      for (const int r : {0, 2}) pools.appendHost(r, 20, 2, keys, values);
      if (what >= 2) pools.device.expectEqual(pools.host);  // nothing of row 1
      EXPECT_EQ(pools.workspace.failure(pools.stream), std::nullopt);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Append, CopiedPagesAreTheCpus) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(textOf(layout));
    Pools pools(layout, 2, 64, 81);
    pools.expectBothSides({0, 0}, 50, 82);
    const int32_t from = pools.table[0], to = pools.host.table.back();
    ASSERT_EQ(cuda::copyPage(pools.device.kv, from, to, pools.stream), std::nullopt);
    ASSERT_EQ(cuda::copyPage(pools.device.kv, from, from, pools.stream), std::nullopt);
    copyPage(pools.host.kv, from, to);
    pools.device.expectEqual(pools.host);
    pools.device.expectGuards();
  }
}

}  // namespace
}  // namespace allot::kernels
