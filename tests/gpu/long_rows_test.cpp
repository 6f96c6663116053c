// Rows of 300,000 and of 2^20 keys: what is true of a thousand is true of them. The weights of what
// is light beside one dominant key are not lost in sums over thousands of splits, draws are the
// CPU's where weights are, budgets may be nearly as large as the row, sets of keys that no block
// has room for are in the workspace, and statistics count it all.
#include <cmath>
#include <map>

#include "tests/gpu/reference.h"
#include "tests/results.h"

namespace allot::kernels {
namespace {

constexpr int kLengths[] = {300000, 1 << 20};
const Layout kLayout{Element::kBFloat16, 64, 256, 1, 1};

// One row whose scores are its bias. Made once: it is more than half a GiB.
Cache& longCache(int length) {
  static std::map<int, Cache> caches;
  const auto known = caches.find(length);
  Cache& cache = known != caches.end()
                     ? known->second
                     : caches.emplace(length, hostCache(kLayout, {length}, 61)).first->second;
  cache.bias.clear();
  cache.repeatFirstRow(1, 1);
  std::fill(cache.queries.begin(), cache.queries.end(), 0.0f);
  return cache;
}

class LongRows : public GpuMethodTest {
 protected:
  bool drawsByWeight() const {
    const Method m = chooserOf(method);
    return usesBudget(method) && m != Method::kTopK && m != Method::kQuest;
  }
};

// Random numbers in -0.5 .. 0.5 without a generator's state.
float noise(int key) {
  const auto word = static_cast<uint32_t>(key) * 2654435761u;
  return static_cast<float>(word >> 8) * 0x1p-24f - 0.5f;
}

// What draws of other keys than `dominant` weigh together, in the mean over rows and its deviation.
struct Tail {
  double mean = 0, deviation = 0;
};
Tail tailOf(const GpuResult& run, int dominant) {
  double sum = 0, squares = 0;
  for (const HeadDraws& head : run.draws) {
    double tail = 0;
    for (size_t i = 0; i < head.keys.size(); ++i) {
      if (head.keys[i] != dominant) tail += head.weights[i];
    }
    sum += tail;
    squares += tail * tail;
  }
  const double count = static_cast<double>(run.draws.size()), mean = sum / count;
  return {mean, std::sqrt(std::max(0.0, squares / count - mean * mean) / count)};
}

// The tail is drawn as often as it weighs, within a 10,000th of it.
TEST_P(LongRows, NothingOfATailIsLost) {
  if (!drawsByWeight()) GTEST_SKIP() << "needs a method that draws by attention weight";
  if (method.largest_remainder)
    GTEST_SKIP() << "needs a method that gives tiles draws by their weight";
  for (const int n : kLengths) {
    Cache& cache = longCache(n);
    const bool independent = method.method == Method::kSanta;
    const int replicates = independent ? 2 : n > 300000 ? 4 : 16;
    cache.repeatFirstRow(replicates, 1);
    Gpu gpu(cache, kLayout.element);
    // What is light in the dominant key's own split is drawn by s2anta-flash in some rows only.
    const double allowed = 1e-4 + (method.method == Method::kS2antaFlash ? 256.0 / n : 0.0);
    for (const float gap : {12.0f, 16.0f}) {
      for (const int dominant : {0, 255, n / 2, n - 1}) {
        double tail = 0;
        for (int j = 0; j < n; ++j) {
          if (j != dominant) tail += std::exp(static_cast<double>(noise(j) - gap));
        }
        const double share = tail / (1 + tail);
        addBias(&cache, [&](int, int j) { return j == dominant ? 0.0f : noise(j) - gap; });
        for (const int budget : {n / 2, n - 1}) {
          SCOPED_TRACE("n " + std::to_string(n) + ", gap " + std::to_string(gap) + ", key " +
                       std::to_string(dominant) + ", S " + std::to_string(budget));
          // The place does not matter twice, nor of draws that are put in order to be looked at.
          if (dominant != 0 && (budget == n / 2 || independent)) continue;
          std::fill(cache.budgets.begin(), cache.budgets.end(), static_cast<uint32_t>(budget));
          gpu.load();
          const Tail drawn = tailOf(gpu.run(method), dominant);
          // Of independent draws the number in the tail has a binomial's spread.
          const double spread = independent
                                    ? std::sqrt(share * (1 - share) / (1.0 * budget * replicates))
                                    : drawn.deviation;
          EXPECT_NEAR(drawn.mean / share, 1, allowed + (5 * spread + 0.5 / budget) / share);
        }
        if (HasFailure()) return;  // the rest would say the same
      }
    }
  }
}

TEST_P(LongRows, DrawsAndStatisticsAreTheCpus) {
  for (const int n : kLengths) {
    Cache& cache = longCache(n);
    addBias(&cache, [](int, int) { return 0.0f; });
    Gpu gpu(cache, kLayout.element);
    for (const Coarse kind : {Coarse::kGaps, Coarse::kOneHeavy}) {
      const uint32_t large = n > 800001 && kind == Coarse::kGaps ? 800001 : 2;
      for (const uint32_t budget : {1000u, large}) {
        SCOPED_TRACE("n " + std::to_string(n) + ", scores " +
                     std::to_string(static_cast<int>(kind)) + ", S " + std::to_string(budget));
        makeCoarse(&cache, kind, 31);
        cache.budgets = {budget};
        gpu.load();
        const GpuResult run = gpu.run(method);
        // Of adaptive methods a pilot's sums round as they may.
        if (usesBudget(method)) {
          const Selection chosen = cpuSelection(method, cache, 0, 0);
          ASSERT_EQ(countsOf(run.draws[0], n), countsOf(chosen, n));
        }
        expectFollowsDraws(cache, run, method, kLayout.element);
        if (HasFailure()) return;
      }
    }
  }
}

// A row takes a CPU seconds. Bernoulli's scores are those of other queries, and budgets are below
// the rows' lengths.
std::vector<std::string> longTexts() {
  std::vector<std::string> list = gpuMethodTexts();
  std::erase_if(list, [](const std::string& text) {
    const MethodOptions method = methodOf(text);
    return method.method == Method::kBernoulli || !exactFromAllKeys(method) ||
           method.page_size == 32;
  });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Methods, LongRows, testing::ValuesIn(longTexts()), methodTestName);

using LongRowPlans = GpuTest;

TEST_F(LongRowPlans, RowsThatNoBlockHasRoomForAreRefused) {
  Cache cache = hostCache(kLayout, {300}, 1);
  Gpu gpu(cache, kLayout.element);
  const auto why = valueOf(gpu.workspace.plan(methodOf("s2anta-sys"), gpu.kv(),
                                              {.rows = 1, .heads = 1, .max_length = 1 << 30}));
  EXPECT_NE(why.find("the GPU takes rows of up to"), std::string::npos) << why;
}

}  // namespace
}  // namespace allot::kernels
