// Pages of the pool: what they cost, where their parts are, and that a copy is whole.
#include "worker/model/kv_pool.h"
#include "tests/results.h"

#include <algorithm>
#include <cstring>

namespace allot {
namespace {

ModelConfig config() {
  ModelConfig config;
  config.layers = 3;
  config.kv_heads = 2;
  config.head_dim = 64;
  return config;
}

constexpr size_t kDenseBytes = size_t{2} * 2 * 32 * 64 * sizeof(float);  // of one page and layer

TEST(KvPool, APageCostsWhatItHolds) {
  const auto bytes = [](const KvPoolOptions& options) {
    return valueOf(KvPool::create(config(), options)).bytesPerPage() / 3;
  };
  EXPECT_EQ(bytes({.page_size = 32}), kDenseBytes);
  EXPECT_EQ(bytes({.page_size = 32, .element = kernels::Element::kBFloat16}), kDenseBytes / 2);
  EXPECT_EQ(bytes({.page_size = 32, .element = kernels::Element::kE4M3}), kDenseBytes / 4);
  const size_t mean_key = 2 * 64 * sizeof(float);
  EXPECT_EQ(bytes({.page_size = 32, .shadow_bits = {4}}),
            kDenseBytes + kernels::shadowBytesPerPage(4, 2, 32, 64) + mean_key);
  EXPECT_EQ(bytes({.page_size = 32, .shadow_bits = {8, 3}, .bounds = true}),
            kDenseBytes + kernels::shadowBytesPerPage(8, 2, 32, 64) +
                kernels::shadowBytesPerPage(3, 2, 32, 64) + mean_key +
                kernels::boundsBytesPerPage(kernels::Element::kFloat32, 2, 32, 64));
  EXPECT_EQ(bytes({.page_size = 32, .zero_reads = ZeroReads::kMeanValue}),
            kDenseBytes + 2 * 2 * 64 * sizeof(double));
  EXPECT_EQ(bytes({.page_size = 32, .value_sums = true}),
            kDenseBytes + 2 * 2 * 64 * sizeof(double));
  EXPECT_EQ(bytes({.page_size = 32, .zero_reads = ZeroReads::kWindow}), kDenseBytes);
  const auto pool = KvPool::create(config(), {.page_size = 32, .kv_bytes = 10 * 3 * kDenseBytes});
  EXPECT_EQ(pool->totalPages(), 10u);
  EXPECT_EQ(pool->layer(0).shadow(4), nullptr);
  EXPECT_EQ(pool->layer(0).bounds, nullptr);
  EXPECT_EQ(pool->layer(0).mean_keys, nullptr);
  EXPECT_EQ(pool->layer(0).value_sums, nullptr);
}

// All bytes of one layer's page, and where each array starts.
std::vector<std::pair<uint8_t*, size_t>> partsOf(const kernels::PagedKv& kv, int64_t page) {
  const auto part = [&](void* base, size_t bytes) {
    return std::pair(static_cast<uint8_t*>(base) + static_cast<size_t>(page) * bytes, bytes);
  };
  const size_t positions = static_cast<size_t>(kv.kv_heads * kv.page_size);
  const auto width = static_cast<size_t>(kv.head_dim);
  std::vector<std::pair<uint8_t*, size_t>> parts = {
      part(kv.keys, positions * width * 4), part(kv.values, positions * width * 4),
      part(kv.mean_keys, static_cast<size_t>(kv.kv_heads) * width * 4),
      part(kv.bounds, positions / 16 * 2 * width * 4),
      part(kv.value_sums, static_cast<size_t>(kv.kv_heads) * 2 * width * 8)};
  for (const auto& shadow : kv.shadows) {
    if (shadow.bits == 0) continue;
    parts.push_back(part(shadow.codes, positions / 16 * shadow.tileBytes(kv.head_dim)));
    parts.push_back(part(shadow.scales, positions * 4));
  }
  return parts;
}

TEST(KvPool, PartsDoNotOverlapAndACopyIsWhole) {
  auto pool = valueOf(KvPool::create(config(), {.page_size = 32,
                                                .kv_bytes = 600 << 10,
                                                .shadow_bits = {3, 8, 4},
                                                .bounds = true,
                                                .zero_reads = ZeroReads::kMeanValue}));
  const auto pages = static_cast<int64_t>(pool.totalPages());
  ASSERT_GE(pages, 3);
  // A mark of its own in every part of every page; were two to overlap, one mark would be gone.
  uint8_t mark = 0;
  const auto eachPart = [&](auto&& visit) {
    mark = 0;
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (int64_t page = 0; page < pages; ++page) {
        for (const auto& [bytes, size] : partsOf(pool.layer(layer), page)) {
          visit(bytes, size, ++mark);
        }
      }
    }
  };
  eachPart([](uint8_t* bytes, size_t size, uint8_t m) { std::memset(bytes, m, size); });
  eachPart([](const uint8_t* bytes, size_t size, uint8_t m) {
    EXPECT_EQ(std::count(bytes, bytes + size, m), static_cast<std::ptrdiff_t>(size));
  });
  ASSERT_TRUE(pool.allocate(3));  // the lowest
  pool.copyPage(0, 2);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const auto from = partsOf(pool.layer(layer), 0), to = partsOf(pool.layer(layer), 2);
    const auto beside = partsOf(pool.layer(layer), 1);
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(std::memcmp(from[i].first, to[i].first, from[i].second), 0) << i;
      EXPECT_NE(std::memcmp(from[i].first, beside[i].first, from[i].second), 0) << i;
    }
  }
}

TEST(KvPool, RefusesWhatItCannotHold) {
  const auto refused = [](const KvPoolOptions& options) {
    return messageOf(KvPool::create(config(), options));
  };
  EXPECT_NE(refused({.shadow_bits = {5}}).find("3, 4 or 8"), std::string::npos);
  EXPECT_NE(refused({.shadow_bits = {4, 4}}).find("once"), std::string::npos);
  EXPECT_NE(refused({.page_size = 24, .bounds = true}).find("24"), std::string::npos);
  EXPECT_EQ(refused({.page_size = 24}), "");
  EXPECT_NE(refused({.kv_bytes = 1000}).find("--kv-memory"), std::string::npos);
}

TEST(KvPoolDeathTest, TakesOnlyPagesThatAreAllocated) {
  auto pool = KvPool::create(config(), {.page_size = 32, .kv_bytes = 600 << 10});
  ASSERT_TRUE(pool) << pool.error().message;
  const std::vector<int32_t> pages = *pool->allocate(2);
  const auto beyond = static_cast<int32_t>(pool->totalPages());
  std::vector<uint8_t> copy(pool->bytesPerPage());
  EXPECT_TRUE(pool->save({pages[0]}, {copy.data()}));
  for (const int32_t page : {int32_t{-1}, beyond - 1, beyond}) {
    EXPECT_DEATH(pool->release({page}), "areAllocated") << page;
    EXPECT_DEATH(pool->copyPage(page, pages[0]), "areAllocated") << page;
    EXPECT_DEATH(pool->copyPage(pages[0], page), "areAllocated") << page;
    EXPECT_DEATH((void)pool->save({page}, {copy.data()}), "areAllocated") << page;
    EXPECT_DEATH((void)pool->load({copy.data()}, {page}), "areAllocated") << page;
  }
  EXPECT_DEATH(pool->release({pages[0], pages[0]}), "areAllocated");
  EXPECT_DEATH(pool->copyPages(pages, {pages[0]}), "Assertion");
  EXPECT_DEATH((void)pool->save(pages, {copy.data()}), "Assertion");
  EXPECT_DEATH((void)pool->load({copy.data()}, pages), "Assertion");
  EXPECT_DEATH((void)pool->layer(-1), "Assertion");
  EXPECT_DEATH((void)pool->layer(3), "Assertion");
  pool->release(pages);
  EXPECT_EQ(pool->freePages(), pool->totalPages());
}

}  // namespace
}  // namespace allot
