// Means, covariances and rates of the sampling methods, against closed forms. Everything has a
// fixed seed; z is normal to good approximation (means of 20000 bounded numbers), |z| > 5.2 has
// probability 2e-7.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "kernels/cpu/draws.h"
#include "kernels/cpu/key_scores.h"
#include "tests/estimators/moments.h"

namespace allot::kernels {
namespace {

constexpr double kZ = 5.2;
constexpr int kReplicates = 20000;
constexpr int kTile = 16;

// One head over 300 keys of 16 channels; scores normal with this deviation.
Cache state(double deviation, uint64_t seed = 31, int keys = 300) {
  Cache cache({.lengths = {keys}, .head_dim = 16, .seed = seed});
  double squares = 0;
  for (int d = 0; d < 16; ++d) squares += cache.query(0, 0)[d] * cache.query(0, 0)[d];
  cache.scale = static_cast<float>(deviation / std::sqrt(squares));
  return cache;
}

const double kDeviations[] = {0.05, 1.0, 3.0};  // flat, as trained heads often are, peaked
const int kBudgets[] = {1, 8, 40};

struct Known {
  const char* method;
  Moments (*moments)(const Population&, int);
};
const Known kKnown[] = {{"santa", independentMoments},
                        {"s2anta-strat", stratifiedMoments},
                        {"s2anta-sys", systematicMoments},
                        {"s2anta-prop tileSize=16", systematicMoments},
                        {"s2anta-flash tileSize=16", [](const Population& p, int samples) {
                           return tiledMoments(p, samples, kTile);
                         }}};

TEST(Unbiased, EveryMethodThatPromisesItIsInTheseTests) {
  std::set<Method> here;
  for (const Known& known : kKnown) here.insert(methodOf(known.method).method);
  for (const MethodTraits& method : methodTable()) {
    if (!includes(method.phases, Phase::kDecode)) continue;
    EXPECT_EQ(here.count(method.method), method.promise == Promise::kUnbiased) << method.name;
  }
}

// 5 methods x 3 states x 3 budgets x (16 coordinates + 1 trace): 765 comparisons, a false alarm in
// 6500 changes of the seed.
TEST(Unbiased, MeanAndCovarianceAreTheClosedForms) {
  for (const double deviation : kDeviations) {
    Cache cache = state(deviation);
    const Population p = Population::of(&cache);
    const std::vector<double> o = p.mean();
    const std::vector<double> dense = cache.exact(0, 0);
    for (int d = 0; d < 16; ++d)
      EXPECT_NEAR(o[d], dense[d], 2e-6);  // integer masses are the softmax
    for (const Known& known : kKnown) {
      for (const int budget : kBudgets) {
        SCOPED_TRACE(testing::Message() << known.method << ", S " << budget << ", " << deviation);
        const Moments closed = known.moments(p, budget);
        for (int d = 0; d < 16; ++d) EXPECT_NEAR(closed.mean[d], o[d], 1e-9);
        const Sample s = sample(decoded(&cache, methodOf(known.method), budget), kReplicates, o);
        EXPECT_LT(largestZ(s, o, closed.variance), kZ);
        EXPECT_LT(std::fabs(traceZ(s, closed.trace())), kZ);
      }
    }
  }
}

// A value stage that is given here, on the scores that decodeAttention would have.
Replicates selected(Cache* cache, SelectFunction select, uint32_t budget) {
  return [=](uint32_t first, int count) {
    const int n = cache->lengths[0], dim = cache->shape.head_dim;
    std::vector<float> scores(n), out(static_cast<size_t>(count) * dim);
    exactScores({&cache->pool.kv, cache->table.data(), 0, n}, cache->query(0, 0), 1, cache->scale,
                scores.data(), n);
    ScoredHead scored(scores);
    scored.head.budget = budget;
    scored.options.tile_size = kTile;
    Selection selection;
    for (int r = 0; r < count; ++r) {
      scored.head.sequence = first + r;
      selection.clear();
      select(scored.head, &selection);
      for (size_t i = 0; i < selection.rows.size(); ++i) {
        const float* v = cache->value(0, 0, selection.rows[i]);
        for (int d = 0; d < dim; ++d) out[r * dim + d] += selection.weights[i] * v[d];
      }
    }
    return out;
  };
}

// The released code's rule: a tile makes floor(S W_t) draws, and the tiles of the largest fractions
// one more.
void selectLargestRemainder(const Head& head, Selection* selection) {
  std::vector<uint64_t> mass;
  for (int first = 0; first < head.n; first += kTile) {
    const int last = std::min(first + kTile, head.n);
    mass.push_back(std::accumulate(head.weights + first, head.weights + last, uint64_t{0}));
  }
  std::vector<uint32_t> draws;
  std::vector<uint64_t> rest;
  for (const uint64_t w : mass) {
    draws.push_back(static_cast<uint32_t>(w * head.budget / head.weight_total));
    rest.push_back(w * head.budget % head.weight_total);
  }
  std::vector<size_t> order(mass.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rest[a] > rest[b]; });
  const uint32_t made = std::accumulate(draws.begin(), draws.end(), 0u);
  for (uint32_t i = 0; i < head.budget - made; ++i) ++draws[order[i]];
  for (size_t t = 0; t < mass.size(); ++t) {
    if (draws[t] == 0) continue;
    const int first = static_cast<int>(t) * kTile;
    selection->thresholds.resize(draws[t]);
    systematicThresholds(mass[t], draws[t], offsetOf(head.random(static_cast<uint32_t>(t))[0]),
                         selection->thresholds.data());
    addDrawsWithin(head, first, std::min(first + kTile, head.n), selection->thresholds.data(),
                   draws[t], 1.0f / static_cast<float>(head.budget), selection);
  }
}

// The twin of the test above: a rule that is biased by less than a draw a tile, and closed forms of
// another method.
TEST(Unbiased, PlantedBiasesAreSeen) {
  for (const double deviation : {1.0, 3.0}) {
    Cache cache = state(deviation);
    const Population p = Population::of(&cache);
    const std::vector<double> o = p.mean();
    // The same harness passes the library's own.
    const Sample good = sample(selected(&cache, selectS2antaProp, 40), kReplicates, o);
    EXPECT_LT(largestZ(good, o, good.variance), kZ);
    const Sample rounded = sample(selected(&cache, selectLargestRemainder, 40), kReplicates, o);
    EXPECT_GT(largestZ(rounded, o, rounded.variance), 3 * kZ);

    const double independent = independentMoments(p, 40).trace();
    const double stratified = stratifiedMoments(p, 40).trace();
    const double systematic = systematicMoments(p, 40).trace();
    const auto seen = [&](const char* method, double trace) {
      const Sample s = sample(decoded(&cache, methodOf(method), 40), kReplicates, o);
      return std::fabs(traceZ(s, trace)) > kZ;
    };
    EXPECT_TRUE(seen("santa", stratified));
    EXPECT_TRUE(seen("santa", 1.05 * independent));
    EXPECT_TRUE(seen("s2anta-strat", independent));
    EXPECT_TRUE(seen("s2anta-strat", systematic));
    EXPECT_TRUE(seen("s2anta-sys", stratified));
  }
}

// Stratified sampling has never more variance than independent draws: an inequality, for any state.
TEST(Variance, StratifiedIsNeverAboveIndependent) {
  std::mt19937 random(41);
  for (int trial = 0; trial < 300; ++trial) {
    const int n = 2 + static_cast<int>(random() % 200);
    Cache cache = state(0.1 * (random() % 50), 1000 + trial, n);
    const Population p = Population::of(&cache);
    for (const int samples : {1, 2, 3, 1 + static_cast<int>(random() % n), n - 1}) {
      const double independent = independentMoments(p, samples).trace();
      EXPECT_LE(stratifiedMoments(p, samples).trace(), independent * (1 + 1e-9));
      if (samples == 1) {
        EXPECT_NEAR(stratifiedMoments(p, 1).trace(), independent, 1e-9 * independent);
      }
    }
  }
}

// log-log slope of the mean squared error in S = 4..128.
double slopeOf(const char* method, Cache* cache, const std::vector<double>& o) {
  std::vector<double> budgets, errors;
  for (const int budget : {4, 8, 16, 32, 64, 128}) {
    budgets.push_back(budget);
    errors.push_back(sample(decoded(cache, methodOf(method), budget), 3000, o).squared_error);
  }
  return logSlope(budgets, errors);
}

// Independent draws: -1, by the closed form. Stratified and systematic ones take every key of
// a_j >= 2/S or 1/S for certain, so that what is left to chance shrinks, too, as S grows. How fast
// depends on the state.
TEST(Variance, FallsWithTheBudgetAsItShould) {
  for (const auto& [deviation, at_most] : {std::pair{1.0, -1.0}, {3.0, -1.3}}) {
    Cache cache = state(deviation, 51, 1000);
    const std::vector<double> o = Population::of(&cache).mean();
    const double independent = slopeOf("santa", &cache, o);
    const double stratified = slopeOf("s2anta-strat", &cache, o);
    const double systematic = slopeOf("s2anta-sys", &cache, o);
    printf("[   slope  ] scores' deviation %g: santa %.3f, s2anta-strat %.3f, s2anta-sys %.3f\n",
           deviation, independent, stratified, systematic);
    EXPECT_NEAR(independent, -1, 0.03);
    EXPECT_LT(stratified, at_most);
    EXPECT_LT(systematic, at_most);
  }
}

// Correlation over replicates of the first coordinates of two outputs; sqrt(R) times it is normal
// if they are independent.
double correlationZ(const std::vector<float>& x, const std::vector<float>& y, size_t stride) {
  double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0, n = 0;
  for (size_t i = 0; i < x.size(); i += stride, ++n) {
    sx += x[i], sy += y[i];
    xx += x[i] * x[i], yy += y[i] * y[i], xy += x[i] * y[i];
  }
  const double covariance = xy / n - sx / n * sy / n;
  const double scale = (xx / n - sx / n * sx / n) * (yy / n - sy / n * sy / n);
  return covariance / std::sqrt(scale) * std::sqrt(n);
}

// Streams that differ in seed, sequence, step, layer or head are independent: were an offset shared
// by all layers, errors would add up over them. 6 methods x 5 streams: a false alarm in 170000
// changes of the seed. The twin is the same stream.
TEST(Streams, AreIndependent) {
  constexpr int kRows = 5000;
  for (const char* method : {"santa", "s2anta-strat", "s2anta-sys", "s2anta-prop tileSize=16",
                             "s2anta-flash tileSize=16", "s2anta-q4"}) {
    SCOPED_TRACE(method);
    Cache cache({.lengths = {100}, .heads = 2, .head_dim = 16, .seed = 61});
    std::copy_n(cache.query(0, 0), 16, cache.query(0, 1));
    cache.repeatFirstRow(kRows, 0);
    std::fill(cache.budgets.begin(), cache.budgets.end(), 9);
    const auto run = [&] { return cache.run(methodOf(method)).out; };
    const std::vector<float> base = run();
    const size_t stride = 2 * 16;
    EXPECT_GT(correlationZ(base, run(), stride), 50);  // the twin: nothing differs
    ++cache.layer;
    EXPECT_LT(std::fabs(correlationZ(base, run(), stride)), kZ);
    --cache.layer, ++cache.seed;
    EXPECT_LT(std::fabs(correlationZ(base, run(), stride)), kZ);
    --cache.seed;
    std::fill(cache.steps.begin(), cache.steps.end(), 6);
    EXPECT_LT(std::fabs(correlationZ(base, run(), stride)), kZ);
    const std::vector<float> head(base.begin() + 16, base.end());
    EXPECT_LT(std::fabs(correlationZ(head, base, stride)), kZ);
    const std::vector<float> next(base.begin() + stride, base.end());
    EXPECT_LT(std::fabs(correlationZ(next, base, stride)), kZ);
  }
}

}  // namespace
}  // namespace allot::kernels
