// The README's example method, built into the library from outside (ALLOT_METHODS_FILE): from its
// entry in the table to outputs that keep its promise.
#include <cmath>

#include "kernels/cpu/methods.h"
#include "tests/kernels/moments.h"

namespace allot::kernels {
namespace {

std::function<void(Selection*)> fault;  // of the method "broken"

}  // namespace

void selectBroken(const Head& head, Selection* selection) {
  selectUniform(head, selection);
  fault(selection);
}

namespace {

TEST(MethodFromOutside, IsAMethodLikeAnyOther) {
  const auto& names = methodNames();
  EXPECT_EQ(std::count(names.begin(), names.end(), "uniform"), 1);
  const MethodOptions uniform = methodOf("uniform");
  EXPECT_EQ(uniform.method, Method::kUniform);
  EXPECT_EQ(methodText(uniform), "uniform");
  EXPECT_TRUE(usesBudget(uniform));
  EXPECT_EQ(traitsOf(uniform.method).promise, Promise::kUnbiased);
  EXPECT_TRUE(gpuUnsupported(uniform));
  MethodOptions none;
  EXPECT_EQ(parseMethod("uniform S=3", &none), "uniform takes no parameters");
  EXPECT_EQ(
      parseMethod("uniform", &none, Phase::kPrefill)->rfind("uniform does not read prompts", 0),
      0u);
}

TEST(MethodFromOutside, WithABudgetForEveryKeyItIsDense) {
  Cache cache({.lengths = {100}, .head_dim = 16, .seed = 3});
  cache.budgets = {100};
  EXPECT_EQ(cache.run(methodOf("uniform")).out, cache.run(methodOf("dense")).out);
}

// The largest |z| of means over 20000 sequences, 3 budgets x 16 channels, by the replicates' own
// variance. Normal to good approximation: |z| > 5.2 once in 100,000 changes of the seed.
double largestZOver(double factor) {
  double largest = 0;
  for (const uint32_t budget : {1u, 8u, 40u}) {
    Cache cache({.lengths = {300}, .head_dim = 16, .seed = 31});
    cache.scale = 0.25f;
    std::vector<double> o = cache.exact(0, 0);
    for (double& x : o) x *= factor;
    const Sample s = sample(decoded(&cache, methodOf("uniform"), budget), 20000, o);
    std::vector<double> error = s.variance;
    largest = std::max(largest, largestZ(s, o, error));
  }
  return largest;
}

TEST(MethodFromOutside, KeepsItsPromise) { EXPECT_LT(largestZOver(1.0), 5.2); }

TEST(MethodFromOutside, ABiasWouldBeSeen) { EXPECT_GT(largestZOver(1.1), 5.2); }

// The step ends where a method breaks its word, and not as wrong outputs or counts.
TEST(MethodFromOutsideDeathTest, ItsSelectionIsHeldToWhatMethodsPromise) {
  Cache cache({.lengths = {100}, .head_dim = 16, .seed = 3});
  cache.budgets = {8};
  fault = [](Selection*) {};
  EXPECT_EQ(cache.run(methodOf("broken")).out, cache.run(methodOf("uniform")).out);
  const std::vector<std::function<void(Selection*)>> faults = {
      [](Selection* s) { s->rows[1] = s->rows[0]; },
      [](Selection* s) { s->rows[0] = -1; },
      [](Selection* s) { s->rows[0] = 100; },
      [](Selection* s) { s->weights[0] = NAN; },
      [](Selection* s) { s->weights[0] = INFINITY; },
      [](Selection* s) { s->weights.pop_back(); },
      [](Selection* s) { s->counts.pop_back(); },
      [](Selection* s) { ++s->counts[0]; },
      [](Selection* s) { ++s->draws; },
      [](Selection* s) { --s->draws; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    fault = faults[i];
    EXPECT_DEATH(cache.run(methodOf("broken")), "isSound") << i;
  }
}

}  // namespace
}  // namespace allot::kernels
