// What is in the cache after appends, to the bit.
#include "allot/kernels/paged_kv.h"

#include <bit>
#include <cmath>

#include "tests/kernels/key_pool.h"
#include "tests/results.h"

namespace allot::kernels {
namespace {

using ::testing::HasSubstr;

// Every bfloat16 is itself, and the halfway points between neighbours go to the even one.
TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fromBFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(fromBFloat16(toBFloat16(value))));
      continue;
    }
    ASSERT_EQ(toBFloat16(value), bits);
    if (std::isinf(value)) continue;
    const float half = std::bit_cast<float>(bits << 16 | 0x8000);
    ASSERT_EQ(toBFloat16(half), bits + (bits & 1)) << bits;
    ASSERT_EQ(toBFloat16(std::bit_cast<float>(bits << 16 | 0x7fff)), bits);
    ASSERT_EQ(toBFloat16(std::bit_cast<float>(bits << 16 | 0x8001)), bits + 1);
  }
  // A NaN whose payload is in the bits that are cut off must not become infinity.
  EXPECT_TRUE(std::isnan(fromBFloat16(toBFloat16(std::bit_cast<float>(0x7f800001)))));
}

struct Case {
  Element element;
  int page_size;
};
class PagedKvTest : public ::testing::TestWithParam<Case> {
 protected:
  KeyPool::Shape shape() const {
    return {.element = GetParam().element,
            .pages = 128 / GetParam().page_size + 1,
            .page_size = GetParam().page_size};
  }
};

TEST_P(PagedKvTest, HoldsWhatWasAppendedInAnyChunks) {
  constexpr int n = 71;  // a partial tile and a partial page
  KeyPool whole(shape());
  const size_t row = 2 * 64;
  const auto keys = normals(n * row, 1), values = normals(n * row, 2);
  ASSERT_EQ(whole.append(0, n, keys.data(), values.data()), std::nullopt);
  for (int j = 0; j < n; ++j) {
    for (size_t i = 0; i < row; ++i) {
      const int head = static_cast<int>(i) / 64, d = static_cast<int>(i) % 64;
      const auto held = [&](float x) {
        return GetParam().element == Element::kFloat32 ? x : fromBFloat16(toBFloat16(x));
      };
      ASSERT_EQ(whole.key(head, j, d), held(keys[j * row + i]));
      ASSERT_EQ(whole.value(head, j, d), held(values[j * row + i]));
    }
  }
  // The first chunk sets the mean key, so that a twin has the same one.
  for (int first : {1, 15, 16, 17, 33, 64}) {
    KeyPool once(shape()), chunked(shape());
    ASSERT_EQ(once.append(0, first, keys.data(), values.data()), std::nullopt);
    chunked = once;
    ASSERT_EQ(once.append(first, n - first, &keys[first * row], &values[first * row]),
              std::nullopt);
    for (int j = first; j < n; ++j) {
      ASSERT_EQ(chunked.append(j, 1, &keys[j * row], &values[j * row]), std::nullopt);
    }
    EXPECT_TRUE(chunked == once) << "first chunk of " << first;
  }
}

TEST_P(PagedKvTest, MeanKeyIsOfTheFirstAppendOfWhatIsHeld) {
  KeyPool pool(shape());
  const size_t row = 2 * 64;
  const auto keys = normals(40 * row, 3);
  ASSERT_EQ(pool.append(0, 20, keys.data(), keys.data()), std::nullopt);
  ASSERT_EQ(pool.append(20, 20, &keys[20 * row], &keys[20 * row]), std::nullopt);
  for (int head = 0; head < 2; ++head) {
    for (int d = 0; d < 64; ++d) {
      double total = 0;
      for (int j = 0; j < 20; ++j) total += pool.key(head, j, d);
      EXPECT_EQ(pool.mean_key(head)[d], static_cast<float>(total / 20));
    }
  }
}

// Bounds are over the keys of a tile that there are, also where a page is used a second time.
TEST_P(PagedKvTest, BoundsGrowWithTheirTile) {
  KeyPool pool(shape());
  const size_t row = 2 * 64;
  const auto old = normals(64 * row, 4, 100.0f), keys = normals(64 * row, 5);
  ASSERT_EQ(pool.append(0, 64, old.data(), old.data()), std::nullopt);
  for (int n = 1; n <= 40; ++n) {
    ASSERT_EQ(pool.append(n - 1, 1, &keys[(n - 1) * row], &keys[(n - 1) * row]), std::nullopt);
    const int tile = (n - 1) / kTileKeys;
    for (int head = 0; head < 2; ++head) {
      for (int d = 0; d < 64; ++d) {
        float least = INFINITY, most = -INFINITY;
        for (int j = tile * kTileKeys; j < n; ++j) {
          least = std::min(least, pool.key(head, j, d));
          most = std::max(most, pool.key(head, j, d));
        }
        ASSERT_EQ(pool.least(head, n - 1, d), least) << n;
        ASSERT_EQ(pool.most(head, n - 1, d), most) << n;
      }
    }
  }
}

// A copied page stands for the first one: a fork goes on as its parent would.
TEST_P(PagedKvTest, CopiedPagesGoOnAsTheirOriginals) {
  const size_t row = 2 * 64;
  const auto keys = normals(48 * row, 6);
  KeyPool pool(shape()), twin(shape());
  const int shared = GetParam().page_size;  // the fork shares no page that is written again
  ASSERT_EQ(pool.append(0, 21, keys.data(), keys.data()), std::nullopt);
  twin = pool;
  std::vector<int32_t> fork = pool.table;
  const int last = 20 / shared;
  std::swap(fork[last], fork[fork.size() - 1]);
  copyPage(pool.kv, pool.table[last], fork[last]);
  const KeyPool parent = pool;
  pool.table = fork;
  ASSERT_EQ(pool.append(21, 27, &keys[21 * row], &keys[21 * row]), std::nullopt);
  ASSERT_EQ(twin.append(21, 27, &keys[21 * row], &keys[21 * row]), std::nullopt);
  for (int j = 0; j < 48; ++j) {
    for (int head = 0; head < 2; ++head) {
      const int64_t mine = pool.offset(head, j), its = twin.offset(head, j);
      for (int d = 0; d < 64; ++d) {
        ASSERT_EQ(pool.key(head, j, d), twin.key(head, j, d));
        ASSERT_EQ(pool.value(head, j, d), twin.value(head, j, d));
      }
      for (int s = 0; s < 3; ++s) {
        ASSERT_EQ(pool.scales[s][mine / 64], twin.scales[s][its / 64]);
        const size_t bytes = pool.kv.shadows[s].tileBytes(64);
        ASSERT_EQ(std::memcmp(&pool.codes[s][mine / 64 / kTileKeys * bytes],
                              &twin.codes[s][its / 64 / kTileKeys * bytes], bytes),
                  0);
      }
      for (int d = 0; d < 64; ++d) {
        ASSERT_EQ(pool.least(head, j, d), twin.least(head, j, d));
        ASSERT_EQ(pool.most(head, j, d), twin.most(head, j, d));
      }
    }
  }
  // The parent's page was only read.
  for (int j = 0; j < 21; ++j) {
    for (int d = 0; d < 64; ++d) ASSERT_EQ(parent.key(0, j, d), twin.key(0, j, d));
  }
  const int64_t page_numbers = static_cast<int64_t>(2) * shared * 64;
  const size_t bytes = page_numbers * bytesOf(GetParam().element);
  EXPECT_EQ(std::memcmp(&pool.keys[parent.table[last] * bytes],
                        &parent.keys[parent.table[last] * bytes], bytes),
            0);
}

TEST_P(PagedKvTest, RefusesAndWritesNothing) {
  const size_t row = 2 * 64;
  KeyPool pool(shape());
  const int limit = static_cast<int>(pool.table.size()) * GetParam().page_size;
  std::vector<float> good(20 * row, 1.0f);
  ASSERT_EQ(pool.append(0, 20, good.data(), good.data()), std::nullopt);
  const KeyPool before = pool;
  const auto refused = [&](int start, const std::vector<float>& keys,
                           const std::vector<float>& values, const char* name) {
    const auto wrong =
        pool.append(start, static_cast<int>(keys.size() / row), keys.data(), values.data());
    ASSERT_TRUE(wrong.has_value()) << name;
    EXPECT_THAT(*wrong, HasSubstr(name));
    EXPECT_TRUE(pool == before) << *wrong;
  };
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    auto keys = good;
    keys[17 * row + 64 + 63] = bad;
    refused(20, keys, good, "keys of row 0, KV head 1, position 37");
    refused(20, good, keys, "values of row 0, KV head 1, position 37");
  }
  // The largest float rounds to infinity in bfloat16.
  auto large = good;
  large[5] = std::numeric_limits<float>::max();
  if (GetParam().element == Element::kBFloat16) {
    refused(20, large, good, "keys of row 0, KV head 0, position 20");
    // The least that does, and the most that does not.
    large[5] = std::bit_cast<float>(0x7f7f8000);
    refused(20, large, good, "keys of row 0, KV head 0, position 20");
    large[5] = std::bit_cast<float>(0x7f7f7fff);
  }
  KeyPool copy = pool;
  EXPECT_EQ(copy.append(20, 20, large.data(), good.data()), std::nullopt);
  EXPECT_TRUE(std::isfinite(copy.key(0, 20, 5)));
  refused(limit - 19, good, good, "page_table");
  refused(-1, good, good, "starts");
  pool.table[0] = static_cast<int32_t>(pool.kv.pages);
  refused(0, good, good, "page_table: row 0, entry 0");
  pool.table = before.table;
  pool.table[(limit - 1) / GetParam().page_size] = -1;
  refused(limit - 20, good, good, "outside the pool");
}

// A row that is refused stops the rows before it too.
TEST(PagedKv, ARefusedRowStopsTheWholeBatch) {
  KeyPool pool({.pages = 4, .kv_heads = 1});
  const KeyPool before = pool;
  std::vector<float> keys(2 * 64, 1.0f);
  const int32_t starts[] = {0, 0}, pages[] = {0, 1};
  keys[64] = NAN;
  const auto wrong = valueOf(appendKv(pool.kv, {keys.data(), keys.data(), pages, starts, 2, 1, 1}));
  EXPECT_THAT(wrong, HasSubstr("keys of row 1, KV head 0, position 0"));
  EXPECT_TRUE(pool == before);
}

TEST(PagedKv, BytesOfAPage) {
  // Llama-8B: 8 KV heads of 128; codes of 4 bits and a float a key.
  EXPECT_EQ(shadowBytesPerPage(4, 8, 16, 128), 8u * 16 * (64 + 4));
  EXPECT_EQ(shadowBytesPerPage(3, 8, 16, 128), 8u * 16 * (48 + 4));
  EXPECT_EQ(shadowBytesPerPage(8, 8, 64, 128), 8u * 64 * (128 + 4));
  EXPECT_EQ(boundsBytesPerPage(Element::kFloat32, 8, 64, 128), 8u * 4 * 2 * 128 * 4);
  EXPECT_EQ(boundsBytesPerPage(Element::kBFloat16, 8, 64, 128), 8u * 4 * 2 * 128 * 2);
}

INSTANTIATE_TEST_SUITE_P(Pages, PagedKvTest,
                         ::testing::Values(Case{Element::kFloat32, 16}, Case{Element::kFloat32, 64},
                                           Case{Element::kBFloat16, 16},
                                           Case{Element::kBFloat16, 32},
                                           Case{Element::kBFloat16, 128}));

}  // namespace
}  // namespace allot::kernels
