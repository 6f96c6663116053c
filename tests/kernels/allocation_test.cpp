// Once its workspace is planned, a step of any method allocates nothing.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/fixture.h"

namespace {
std::atomic<int> allocations{0};
}

// Not inlined: GCC else takes malloc() and delete for a mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace allot::kernels {
namespace {

TEST(Allocation, APlannedStepMakesNone) {
  for (const std::string& text : methodTexts()) {
    for (const int threads : {1, 2}) {
      Cache cache({.lengths = {300, 40, 1}, .kv_heads = 2, .heads = 6});
      cache.budgets = {60, 39, 1};
      DecodeWorkspace workspace(threads);
      workspace.plan(300, 3, 64);
      std::vector<float> out(cache.queries.size()), lse(3 * 6);
      std::vector<RowStatistics> rows(3);
      std::vector<HeadStatistics> heads(3 * 6);
      std::vector<GroupStatistics> groups(3 * 2);
      const MethodOptions method = methodOf(text);
      const DecodeInputs in = cache.inputs();
      const int before = allocations;
      EXPECT_EQ(decodeAttention(method, cache.pool.kv, in, &workspace,
                                {.out = out.data(),
                                 .lse = lse.data(),
                                 .statistics = rows.data(),
                                 .head_statistics = heads.data(),
                                 .group_statistics = groups.data()}),
                std::nullopt);
      EXPECT_EQ(allocations, before) << text;
    }
  }
}

}  // namespace
}  // namespace allot::kernels
