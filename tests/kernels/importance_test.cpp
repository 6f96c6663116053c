// s2anta-q4's importance weights: the bias that dividing by their own sum leaves, and what the
// proposal costs in variance; and what heads report of themselves (effective sample size, estimated
// error). On normal states and on those recorded from recall-7m.

#include "kernels/cpu/key_scores.h"
#include "tests/kernels/moments.h"
#include "tests/kernels/recall_caches.h"

namespace allot::kernels {
namespace {

constexpr double kZ = 5.2;  // 2e-7

// One head over normal keys; scores normal with this deviation.
Cache normalState(double deviation, int keys = 500, uint64_t seed = 71) {
  Cache cache({.lengths = {keys}, .element = Element::kBFloat16, .seed = seed});
  double squares = 0;
  for (int d = 0; d < 64; ++d) squares += cache.query(0, 0)[d] * cache.query(0, 0)[d];
  cache.scale = static_cast<float>(deviation / std::sqrt(squares));
  return cache;
}

std::vector<Cache> normalStates(int count) {
  std::vector<Cache> list;
  for (int i = 0; i < count; ++i) list.push_back(normalState(1 + i % 3, 500, 100 + i));
  return list;
}

// Values whose first channel is the logarithm of their key's importance weight: nothing shows the
// bias of dividing by the weights' own sum more. The proposal is flat enough for draws to be nearly
// independent.
Cache revealingState(int bits) {
  constexpr int kKeys = 1000;
  Cache cache = normalState(1, kKeys, 73);
  std::vector<float> exact(kKeys), proposed(kKeys + 16);
  const KeyRange keys{&cache.pool.kv, cache.table.data(), 0, kKeys};
  exactScores(keys, cache.query(0, 0), 1, cache.scale, exact.data(), kKeys);
  shadowScores(keys, bits, cache.query(0, 0), 1, cache.scale, proposed.data(), kKeys);
  for (int j = 0; j < kKeys; ++j) {
    cache.value(0, 0, j)[0] = fromBFloat16(toBFloat16(exact[j] - proposed[j]));
  }
  cache.write();
  return cache;
}

std::vector<double> exactOf(const Cache& cache) { return cache.exact(0, 0); }
double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

// Draws in proportion to the shadow's scores with nothing to put them right.
Replicates uncorrected(Cache* cache, int bits, uint32_t budget) {
  return [=](uint32_t first, int count) {
    const int n = cache->lengths[0], dim = cache->shape.head_dim;
    std::vector<float> scores(n + 16), out(static_cast<size_t>(count) * dim);
    shadowScores({&cache->pool.kv, cache->table.data(), 0, n}, bits, cache->query(0, 0), 1,
                 cache->scale, scores.data(), n);
    scores.resize(n);
    ScoredHead scored(scores);
    scored.head.budget = budget;
    for (int r = 0; r < count; ++r) {
      scored.head.sequence = first + r;
      const Selection selection = select(selectS2antaSys, scored);
      for (size_t i = 0; i < selection.rows.size(); ++i) {
        const float* v = cache->value(0, 0, selection.rows[i]);
        for (int d = 0; d < dim; ++d) out[r * dim + d] += selection.weights[i] * v[d];
      }
    }
    return out;
  };
}

// The slope of the bias of the first channel over S = 4..64.
double biasSlope(const std::function<Replicates(uint32_t budget)>& replicates,
                 const std::vector<double>& o) {
  std::vector<double> budgets, biases;
  for (const uint32_t budget : {4, 8, 16, 32, 64}) {
    const Sample s = sample(replicates(budget), 40000, o);
    budgets.push_back(budget);
    biases.push_back(std::fabs(s.mean[0] - o[0]));
  }
  return logSlope(budgets, biases);
}

// A ratio's bias is as its denominator's variance: 1/S, or faster where systematic draws vary less
// than independent ones. Three bits, as there the bias stands out of the noise: 26 standard errors
// at S = 4, 6 at S = 64, so that the slope is known to about 0.1. A bias that does not shrink has
// the slope 0, and is there as the twin.
TEST(S2antaQ4, BiasShrinksWithTheBudget) {
  Cache cache = revealingState(3);
  const auto o = exactOf(cache);
  const MethodOptions method = methodOf("s2anta-q4 bits=3");
  const double slope = biasSlope([&](uint32_t s) { return decoded(&cache, method, s); }, o);
  const double planted = biasSlope([&](uint32_t s) { return uncorrected(&cache, 3, s); }, o);
  printf("[   slope  ] bias of q3's own weights %.3f, without weights %.3f\n", slope, planted);
  EXPECT_LT(slope, -0.8);
  EXPECT_GT(slope, -1.4);
  EXPECT_GT(planted, -0.25);
}

// With the exact normaliser the estimate is unbiased. 6 x 64 comparisons: a false alarm in 13000
// changes of the seed; the twin is the division by the weights' own sum.
TEST(S2antaQ4, ExactWeightsAreUnbiased) {
  for (const char* bits : {"3", "4", "8"}) {
    Cache cache = revealingState(std::stoi(bits));
    const auto o = exactOf(cache);
    const std::string name = std::string("s2anta-q4 bits=") + bits;
    for (const uint32_t budget : {4, 32}) {
      const Sample s = sample(decoded(&cache, methodOf(name + " weights=exact"), budget), 20000, o);
      EXPECT_LT(largestZ(s, o, s.variance), kZ) << name << ", S " << budget;
    }
    if (bits[0] != '3') continue;  // with more bits the bias hardly stands out of the noise
    const Sample self = sample(decoded(&cache, methodOf(name), 4), 20000, o);
    EXPECT_GT(largestZ(self, o, self.variance), kZ) << name;
  }
}

// What draws from a shadow cost in mean squared error at S = 128, beside draws from exact scores:
// the geometric mean over states. A single head's ratio is between 0.2 and 4 for q4, as may be that
// of two orders of the same keys under systematic sampling.
TEST(S2antaQ4, CostsLittleBesideExactScores) {
  for (const bool recorded : {true, false}) {
    std::vector<Cache> states = recorded ? recallCaches(true) : normalStates(80);
    double logs[3] = {}, count = 0;
    for (Cache& cache : states) {
      const auto o = exactOf(cache);
      const auto error = [&](const char* method) {
        return sample(decoded(&cache, methodOf(method), 128), 100, o).squared_error;
      };
      const double exact = error("s2anta-sys");
      if (std::sqrt(exact) < 1e-3 * norm(o)) continue;  // one key has it all
      ++count;
      logs[0] += std::log(error("s2anta-q4 bits=3") / exact);
      logs[1] += std::log(error("s2anta-q4") / exact);
      logs[2] += std::log(error("s2anta-q4 bits=8") / exact);
    }
    for (double& sum : logs) sum = std::exp(sum / count);
    printf("[   ratio  ] %s states: q3 %.3f, q4 %.3f, q8 %.3f of s2anta-sys\n",
           recorded ? "recorded" : "normal", logs[0], logs[1], logs[2]);
    EXPECT_LT(logs[0], 2.2);
    EXPECT_LT(logs[1], 1.25);
    EXPECT_NEAR(logs[2], 1, 0.08);
  }
}

// Over replicates, mean squares of (out - o) and of what the heads estimate for it.
struct Errors {
  double truth = 0, estimate = 0, truth_relative = 0, estimate_relative = 0;
};
Errors errors(Cache* cache, const char* method, uint32_t budget) {
  constexpr int kRows = 1000;
  cache->repeatFirstRow(kRows, 0);
  std::fill(cache->budgets.begin(), cache->budgets.end(), budget);
  const auto run = cache->run(methodOf(method));
  const auto o = exactOf(*cache);
  Errors mean;
  for (int r = 0; r < kRows; ++r) {
    double truth = 0, size = 0;
    for (size_t d = 0; d < o.size(); ++d) {
      const double x = run.out[r * o.size() + d];
      truth += (x - o[d]) * (x - o[d]);
      size += x * x;
    }
    const double estimate = run.heads[r].relative_error * run.heads[r].relative_error;
    mean.truth += truth / kRows;
    mean.estimate += estimate * size / kRows;
    mean.truth_relative += truth / (norm(o) * norm(o)) / kRows;
    mean.estimate_relative += estimate / kRows;
  }
  return mean;
}

// The estimate of the absolute squared error is unbiased for independent draws; left without
// S / (S - 1) it would be 0.9375 of it here. For stratified and systematic ones it is above, on
// average over states. Relative errors follow where they are small: |out| stands for |o|.
TEST(HeadStatistics, EstimatedErrorsAreTheErrors) {
  constexpr uint32_t kBudget = 16;
  std::vector<Cache> states = recallCaches(false);
  for (Cache& cache : normalStates(9)) states.push_back(std::move(cache));
  double santa = 0, strat = 0, sys = 0, count = 0, small = 0, relative = 0;
  for (Cache& cache : states) {
    const auto a = cache.probabilities(0, 0);
    if (*std::max_element(a.begin(), a.end()) > 0.9) continue;  // errors of rare draws alone
    const Errors e = errors(&cache, "santa", kBudget);
    ++count;
    santa += e.estimate / e.truth;
    EXPECT_NEAR(e.estimate / e.truth, 1, 0.25);
    for (const auto& [method, sum] : {std::pair{"s2anta-strat", &strat}, {"s2anta-sys", &sys}}) {
      const Errors other = errors(&cache, method, kBudget);
      *sum += other.estimate / other.truth;
    }
    if (e.truth_relative > 0.25 * 0.25) continue;
    const double ratio = std::sqrt(e.estimate_relative / e.truth_relative);
    ++small;
    relative += ratio;
    EXPECT_NEAR(ratio, 1, 0.15);
  }
  printf(
      "[ estimate ] of %g states: mean squared error %.3f of the truth for santa, %.3f for "
      "strat, %.3f for sys;\n             relative error, %g states below 0.25: %.3f for santa\n",
      count, santa / count, strat / count, sys / count, small, relative / small);
  EXPECT_NEAR(santa / count, 1, 0.03);
  EXPECT_GT(strat / count, 1);
  EXPECT_GT(sys / count, 1);
  EXPECT_NEAR(relative / small, 1, 0.05);
}

TEST(HeadStatistics, EffectiveSampleSizeCountsEqualWeights) {
  for (Cache& cache : normalStates(3)) {
    cache.repeatFirstRow(50, 0);
    for (const uint32_t budget : {1u, 7u, 100u, 499u}) {
      std::fill(cache.budgets.begin(), cache.budgets.end(), budget);
      for (const char* method : {"santa", "s2anta-strat", "s2anta-sys", "s2anta-prop"}) {
        for (const HeadStatistics& head : cache.run(methodOf(method)).heads) {
          EXPECT_NEAR(head.effective_sample_size, budget, 1e-5 * budget) << method;
        }
      }
      // Tiles of different weight, and importance weights: fewer.
      for (const char* method : {"s2anta-flash tileSize=16", "s2anta-q4"}) {
        for (const HeadStatistics& head : cache.run(methodOf(method)).heads) {
          if (budget > 1 || method[7] == 'f') {
            EXPECT_LT(head.effective_sample_size, head.draws);
          }
          EXPECT_GT(head.effective_sample_size, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels
