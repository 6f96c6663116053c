// draws=group: every head's mean over draws is exact attention, with the variance of the closed
// forms; what the three kinds of weights give; the error bar.
#include <cmath>
#include <numeric>

#include "tests/kernels/moments.h"

namespace allot::kernels {
namespace {

constexpr double kZ = 5.2;  // 2e-7
constexpr int kDim = 16;

// A group of heads over 300 keys of 16 channels; scores normal with this deviation.
Cache groupOf(int heads, double deviation = 2, int keys = 300) {
  Cache cache({.lengths = {keys}, .heads = heads, .head_dim = kDim, .seed = 41});
  double squares = 0;
  for (int i = 0; i < heads * kDim; ++i) squares += cache.query(0, 0)[i] * cache.query(0, 0)[i];
  cache.scale = static_cast<float>(deviation / std::sqrt(squares / heads));
  return cache;
}

// A cache with sums of values, and what a group's heads give over many random streams.
class Replicated {
 public:
  Replicated(Cache* cache, const std::vector<uint32_t>& budgets, const MethodOptions& method,
             int count)
      : heads_(budgets.size()) {
    const CacheShape& s = cache->shape;
    std::vector<double> sums(static_cast<size_t>(cache->pool.kv.pages) * 2 * kDim);
    cache->pool.kv.value_sums = sums.data();
    cache->repeatFirstRow(1, 0);
    cache->write();
    constexpr int kBatch = 500;
    for (int first = 0; first < count; first += kBatch) {
      cache->repeatFirstRow(kBatch, static_cast<uint32_t>(first));
      const std::vector<uint32_t> all = forRows(*cache, budgets);
      const Cache::Result run = cache->run(method, withBudgets(*cache, all));
      out_.insert(out_.end(), run.out.begin(), run.out.end());
      statistics.insert(statistics.end(), run.heads.begin(), run.heads.end());
    }
    cache->pool.kv.value_sums = nullptr;
    EXPECT_EQ(static_cast<size_t>(s.heads), heads_);
  }

  const float* output(uint32_t replicate, size_t head) const {
    return out_.data() + (replicate * heads_ + head) * kDim;
  }
  Replicates head(size_t h) const {
    return [this, h](uint32_t first, int count) {
      std::vector<float> out;
      for (int r = 0; r < count; ++r) {
        const float* from = output(first + static_cast<uint32_t>(r), h);
        out.insert(out.end(), from, from + kDim);
      }
      return out;
    };
  }

  std::vector<HeadStatistics> statistics;  // [replicates, heads]

 private:
  size_t heads_;
  std::vector<float> out_;
};

// The group's mixture, in double precision from the heads' integer weights.
std::vector<double> mixtureOf(Cache* cache, const std::vector<uint32_t>& budgets, bool norms) {
  const auto n = static_cast<size_t>(cache->lengths[0]);
  std::vector<double> p(n), norm(n);
  const double total = std::accumulate(budgets.begin(), budgets.end(), 0.0);
  for (size_t h = 0; h < budgets.size(); ++h) {
    const Population one = Population::of(cache, static_cast<int>(h));
    for (size_t j = 0; j < n; ++j) {
      p[j] += budgets[h] / total * one.a[j];
      norm[j] += budgets[h] / total * one.a[j] * one.a[j];
    }
  }
  if (!norms) return p;
  double sum = 0;
  for (size_t j = 0; j < n; ++j) {
    const float* v = cache->value(0, 0, static_cast<int>(j));
    sum += norm[j] = std::sqrt(norm[j] * std::inner_product(v, v + kDim, v, 0.0));
  }
  for (size_t j = 0; j < n; ++j) p[j] = p[j] / 4 + 0.75 * norm[j] / sum;
  return p;
}

// The population from which one head's unbiased estimate averages: keys with probability p_j, and
// a_hj / p_j (v_j - centre) in place of v_j.
class Weighted {
 public:
  Weighted(Cache* cache, int head, const std::vector<double>& p,
           const std::vector<double>& centre) {
    const Population own = Population::of(cache, head);
    numbers_.resize(p.size() * kDim);
    for (size_t j = 0; j < p.size(); ++j) {
      for (size_t d = 0; d < kDim; ++d) {
        numbers_[j * kDim + d] =
            static_cast<float>(own.a[j] / p[j] * (own.values[j][d] - centre[d]));
      }
      population.values.push_back(numbers_.data() + j * kDim);
    }
    population.a = p;
    population.dim = kDim;
  }
  Population population;

 private:
  std::vector<float> numbers_;
};

std::vector<double> meanValueOf(Cache* cache) {
  std::vector<double> mean(kDim);
  for (int j = 0; j < cache->lengths[0]; ++j) {
    for (int d = 0; d < kDim; ++d) mean[d] += cache->value(0, 0, j)[d] / cache->lengths[0];
  }
  return mean;
}

struct Known {
  const char* method;
  Moments (*moments)(const Population&, int);
};
const Known kKnown[] = {{"santa", independentMoments},
                        {"s2anta-strat", stratifiedMoments},
                        {"s2anta-sys", systematicMoments}};  // by enumeration of the offsets

// 3 methods x 2 proposals x 2 weights x 3 heads x 17 comparisons: a false alarm in 8,000 changes of
// the seed. Budgets are the heads' own. The twin: weights divided by their sum are biased.
TEST(GroupDraws, AreUnbiasedForEveryHead) {
  constexpr int kReplicates = 20000;
  const std::vector<uint32_t> budgets = {2, 5, 1};
  const int draws = 8;
  Cache cache = groupOf(3);
  const std::vector<double> zero(kDim), mean = meanValueOf(&cache);
  for (const Known& known : kKnown) {
    for (const bool norms : {false, true}) {
      const std::vector<double> p = mixtureOf(&cache, budgets, norms);
      for (const bool centred : {false, true}) {
        const std::string text = std::string(known.method) +
                                 " draws=group weights=" + (centred ? "centred" : "exact") +
                                 (norms ? " proposal=attention-norm" : "");
        const Replicated replicated(&cache, budgets, methodOf(text), kReplicates);
        for (int h = 0; h < 3; ++h) {
          SCOPED_TRACE(text + ", head " + std::to_string(h));
          const Weighted weighted(&cache, h, p, centred ? mean : zero);
          const Moments closed = known.moments(weighted.population, draws);
          const std::vector<double> o = cache.exact(0, h);
          for (int d = 0; d < kDim; ++d) {
            EXPECT_NEAR(closed.mean[d] + (centred ? mean[d] : 0), o[d], 1e-5);
          }
          const Sample s = sample(replicated.head(static_cast<size_t>(h)), kReplicates, o);
          EXPECT_LT(largestZ(s, o, closed.variance), kZ);
          EXPECT_LT(std::fabs(traceZ(s, closed.trace())), kZ);
        }
      }
    }
    const Replicated self(&cache, budgets, methodOf(std::string(known.method) + " draws=group"),
                          kReplicates);
    const std::vector<double> o = cache.exact(0, 0);
    const Sample biased = sample(self.head(0), kReplicates, o);
    EXPECT_GT(largestZ(biased, o, biased.variance), kZ) << known.method;
  }
}

// By a shadow's scores, which differ from the exact ones; 3 heads x 2 weights x 16 comparisons.
TEST(GroupDraws, FromAShadowAreUnbiasedWithExactWeights) {
  constexpr int kReplicates = 8000;
  const std::vector<uint32_t> budgets = {3, 3, 3};
  Cache cache = groupOf(3);
  for (const char* weights : {"exact", "centred"}) {
    const MethodOptions method =
        methodOf(std::string("s2anta-q4 bits=3 draws=group weights=") + weights);
    const Replicated replicated(&cache, budgets, method, kReplicates);
    for (size_t h = 0; h < 3; ++h) {
      const std::vector<double> o = cache.exact(0, static_cast<int>(h));
      const Sample s = sample(replicated.head(h), kReplicates, o);
      EXPECT_LT(largestZ(s, o, s.variance), kZ) << weights << ", head " << h;
    }
  }
  // The twin: the weights of s2anta-sys on the shadow's scores, with nothing to put them right.
  const Replicated self(&cache, budgets, methodOf("s2anta-q4 bits=3 draws=group"), kReplicates);
  const std::vector<double> o = cache.exact(0, 0);
  const Sample biased = sample(self.head(0), kReplicates, o);
  EXPECT_GT(largestZ(biased, o, biased.variance), kZ);
}

// The squared error bar is the variance of independent draws: over replicates its mean is within a
// tenth of santa's squared error, and above that of stratified and of systematic draws.
TEST(GroupDraws, ErrorBarIsThatOfIndependentDraws) {
  constexpr int kReplicates = 8000;
  const std::vector<uint32_t> budgets = {8, 8, 8};
  Cache cache = groupOf(3, 1);
  const std::vector<double> o = cache.exact(0, 0);
  for (const char* name : {"santa", "s2anta-strat", "s2anta-sys"}) {
    for (const char* weights : {"exact", "centred", "self"}) {
      const std::string text = std::string(name) + " draws=group weights=" + weights;
      const Replicated replicated(&cache, budgets, methodOf(text), kReplicates);
      double barred = 0, squared = 0;
      for (uint32_t r = 0; r < kReplicates; ++r) {
        const float* out = replicated.output(r, 0);
        double norm = 0, error = 0;
        for (int d = 0; d < kDim; ++d) {
          norm += out[d] * out[d];
          error += (out[d] - o[d]) * (out[d] - o[d]);
        }
        barred += std::pow(replicated.statistics[r * 3].relative_error, 2) * norm;
        squared += error;
      }
      printf("[ bar/error] %s %.3f\n", text.c_str(), std::sqrt(barred / squared));
      // A ratio's bias is in the error and not in the bar.
      const bool above = std::string(name) != "santa" && std::string(weights) != "self";
      EXPECT_GT(barred / squared, above ? 1.0 : 0.9) << text;
      if (std::string(name) == "santa") {
        EXPECT_LT(barred / squared, 1.1) << text;
      }
    }
  }
}

// `centred` gives the mean value what the weights lack of 1, also with windows, in bfloat16, and
// after appends across pages. Channel 0 of all values is 1: that of `exact` is the weights' sum.
TEST(GroupDraws, CentredWeightsAreExactOnesAndTheMeanValue) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache(
        {.lengths = {300, 65, 17}, .kv_heads = 2, .heads = 6, .element = element, .seed = 4});
    std::vector<double> sums(static_cast<size_t>(cache.pool.kv.pages) * 2 * 2 * 64);
    cache.pool.kv.value_sums = sums.data();
    for (int r = 0; r < 3; ++r) {
      for (int k = 0; k < 2; ++k) {
        for (int j = 0; j < cache.lengths[r]; ++j) cache.value(r, k, j)[0] = 1;
      }
      cache.append(r, 0, 10);
      cache.append(r, 10, cache.lengths[r]);
    }
    cache.budgets = {9, 4, 2};
    for (const int window : {0, 50}) {
      DecodeInputs in = cache.inputs();
      in.window = window;
      for (const std::string name : {"santa", "s2anta-sys", "s2anta-q4", "s2anta-prop"}) {
        const auto exact = cache.run(methodOf(name + " draws=group weights=exact"), in);
        const auto centred = cache.run(methodOf(name + " draws=group weights=centred"), in, 2);
        for (int r = 0; r < 3; ++r) {
          for (int h = 0; h < 6; ++h) {
            const float* e = exact.out.data() + (r * 6 + h) * 64;
            const float* c = centred.out.data() + (r * 6 + h) * 64;
            for (int d = 0; d < 64; ++d) {
              double mean = 0;
              for (int j = 0; j < cache.lengths[r]; ++j) {
                mean += cache.value(r, cache.kvHead(h), j)[d] / cache.lengths[r];
              }
              EXPECT_NEAR(c[d], e[d] + (1 - e[0]) * mean, 1e-4);
            }
          }
        }
      }
    }
    cache.pool.kv.value_sums = nullptr;
  }
}

}  // namespace
}  // namespace allot::kernels
