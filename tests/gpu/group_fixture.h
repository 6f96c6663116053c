#pragma once
// What the tests of methods share whose query heads of a KV head draw or choose together: groups of
// every size, budgets by head, and the comparison with the CPU.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/reference.h"

namespace allot::kernels {

inline constexpr int kGroups[] = {1, 2, 3, 4, 6, 7, 8, 12, 16};

// Both elements, head sizes and numbers of KV heads by turns.
inline Layout layoutOfGroup(int group) {
  return {group % 3 == 0 ? Element::kFloat16 : Element::kBFloat16, group % 2 ? 64 : 128,
          group % 4 ? 16 : 64, group, group < 4 ? 2 : 1};
}

inline DecodeInputs withHeadBudgets(DecodeInputs in, const uint32_t* budgets) {
  in.budgets = budgets;
  in.head_budgets = true;
  return in;
}

// Budgets from 0 to 30 by head. Groups whose budgets reach the row's keys are exact, if the method
// reads as many as its budget says.
inline std::vector<uint32_t> mixedBudgets(const Cache& cache) {
  const uint32_t some[] = {0, 7, 1, 30, 0, 13, 2, 5, 24};
  std::vector<uint32_t> budgets;
  for (int i = 0; i < cache.rows() * cache.shape.heads; ++i) budgets.push_back(some[i % 9]);
  return budgets;
}

// Statistics are the CPU's, and outputs and log-sums nearly so. `in` and `cpu_in` are the same
// inputs, in device memory and on the host. apart: the largest difference of an output.
inline void expectCpus(const MethodOptions& method, const Cache& cache, Gpu* gpu,
                       const DecodeInputs& in, const DecodeInputs& cpu_in, float apart) {
  const cuda::StepBounds bounds{
      .rows = cache.rows(),
      .heads = cache.shape.heads,
      .max_length = *std::max_element(cache.lengths.begin(), cache.lengths.end()),
      .max_budget = 1000,
      .statistics = true};
  const GpuResult run = gpu->run(method, bounds, in);
  const Cache::Result cpu = cache.run(method, cpu_in);
  if (gpu->element == Element::kBFloat16) expectStatistics(run, cpu);  // float32 has other bytes
  for (size_t i = 0; i < cpu.out.size(); ++i) ASSERT_NEAR(run.out[i], cpu.out[i], apart) << i;
  for (size_t i = 0; i < cpu.lse.size(); ++i) {
    if (run.lse[i] == cpu.lse[i]) continue;  // -infinity, too
    ASSERT_NEAR(run.lse[i], cpu.lse[i], 1e-3) << i;
  }
}

// Each of these methods has to be one that the GPU decodes with.
class GroupMethodTest : public GpuMethodTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuda::unsupported(methodOf(GetParam())).value_or(""), "");
    GpuMethodTest::SetUp();
  }

  // Compares with the CPU where weights are powers of two: every group, one budget and budgets by
  // head, with and without a window.
  void expectCpusOnCoarseScores(const std::function<Cache(const Layout&)>& cacheOf, float apart) {
    for (const int group : kGroups) {
      const Layout layout = layoutOfGroup(group);
      Cache cache = cacheOf(layout);
      addBias(&cache, [](int, int) { return 0.0f; });
      Gpu gpu(cache, layout.element);
      for (const Coarse kind : kAllCoarse) {
        makeCoarse(&cache, kind, 17);
        const std::vector<uint32_t> budgets = mixedBudgets(cache);
        const DeviceArray<uint32_t> heads(budgets);
        for (const int window : {0, 445}) {
          SCOPED_TRACE(textOf(layout) + ", scores " + std::to_string(static_cast<int>(kind)) +
                       ", window " + std::to_string(window));
          for (const uint32_t budget : {1u, 40u, 128u}) {
            SCOPED_TRACE("S " + std::to_string(budget));
            std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
            gpu.load();
            DecodeInputs in = gpu.inputs(), cpu_in = cache.inputs();
            in.window = cpu_in.window = window;
            expectCpus(method, cache, &gpu, in, cpu_in, apart);
            if (HasFailure()) return;
          }
          DecodeInputs in = gpu.inputs(), cpu_in = cache.inputs();
          in.window = cpu_in.window = window;
          expectCpus(method, cache, &gpu, withHeadBudgets(in, heads.get()),
                     withHeadBudgets(cpu_in, budgets.data()), apart);
          if (HasFailure()) return;
        }
      }
    }
  }
};

}  // namespace allot::kernels
