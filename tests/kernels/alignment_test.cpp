// Which addresses arrays may begin at on a GPU (kernels/cuda/alignment.h). Without a GPU.
#include "kernels/cuda/alignment.h"

#include <gmock/gmock.h>

#include <functional>

namespace allot::kernels::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename T>
void moveBy(T*& array, uintptr_t bytes) {
  array = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(array) + bytes);
}

struct Arrays {
  PagedKv kv;
  const float* queries = nullptr;
  const float* out = nullptr;

  // Nobody reads there.
  Arrays() {
    for (void** array : {&kv.keys, &kv.values, &kv.bounds}) moveBy(*array, 1 << 12);
    moveBy(kv.shadows[1].codes, 1 << 12);
    moveBy(kv.shadows[1].scales, 1 << 12);
    kv.shadows[1].bits = 4;
    moveBy(kv.mean_keys, (1 << 12) + 4);
    moveBy(kv.value_sums, (1 << 12) + 8);
    moveBy(queries, 1 << 12);
    moveBy(out, 1 << 12);
  }
  std::optional<std::string> refused() const { return misaligned(kv, queries, out); }
};

TEST(Alignment, EachArrayThatIsLoadedAtOnceIsNamed) {
  const struct {
    const char* name;
    std::function<void(Arrays*, uintptr_t)> move;
    uintptr_t multiple;
  } arrays[] = {
      {"queries", [](Arrays* all, uintptr_t by) { moveBy(all->queries, by); }, 16},
      {"the cache's keys", [](Arrays* all, uintptr_t by) { moveBy(all->kv.keys, by); }, 16},
      {"the cache's values", [](Arrays* all, uintptr_t by) { moveBy(all->kv.values, by); }, 16},
      {"the cache's codes", [](Arrays* all, uintptr_t by) { moveBy(all->kv.shadows[1].codes, by); },
       16},
      {"the cache's scales",
       [](Arrays* all, uintptr_t by) { moveBy(all->kv.shadows[1].scales, by); }, 16},
      {"the cache's bounds", [](Arrays* all, uintptr_t by) { moveBy(all->kv.bounds, by); }, 16},
      {"outputs", [](Arrays* all, uintptr_t by) { moveBy(all->out, by); }, 8}};
  ASSERT_EQ(Arrays().refused(), std::nullopt);
  for (const auto& [name, move, multiple] : arrays) {
    for (uintptr_t by = 1; by <= 32; ++by) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(by));
      Arrays all;
      move(&all, by);
      const auto refused = all.refused();
      ASSERT_EQ(refused.has_value(), by % multiple != 0);
      if (!refused) continue;
      EXPECT_THAT(*refused, StartsWith("the data of " + std::string(name) + " begin "));
      EXPECT_THAT(*refused, HasSubstr("no multiple of " + std::to_string(multiple) + ","));
    }
  }
}

TEST(Alignment, WhatIsNotThereIsNotAsked) {
  EXPECT_EQ(misaligned(PagedKv()), std::nullopt);
  PagedKv kv;  // a shadow that no GPU reads
  kv.shadows[0].bits = 8;
  moveBy(kv.shadows[0].codes, 1);
  EXPECT_EQ(misaligned(kv), std::nullopt);
}

}  // namespace
}  // namespace allot::kernels::cuda
