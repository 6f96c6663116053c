// draws=group: what is drawn, from integers that are computed here once more; that every head's
// mean over draws is exact attention, with the variance of the closed forms; the bounds on weights;
// the error bar; and what a group reads.
#include "kernels/cpu/group_draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/draws.h"
#include "kernels/cpu/value_sums.h"
#include "tests/kernels/moments.h"
#include "tests/kernels/prompt.h"

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

// ---- Draws

// Heads that draw together, on scores of their own.
class DrawnGroup {
 public:
  DrawnGroup(const std::vector<std::vector<float>>& scores, const std::vector<uint32_t>& budgets,
             const MethodOptions& options, int first = 0)
      : options_(options) {
    for (size_t h = 0; h < scores.size(); ++h) {
      heads_.push_back(std::make_unique<ScoredHead>(scores[h]));
      Head head = heads_.back()->head;
      head.budget = budgets[h];
      head.first = first;
      head.options = &options_;
      draw.heads.push_back(head);
    }
    length_ = (heads_.front()->n() + 31) / 32 * 32;
    draw.plan(length_, static_cast<int>(scores.size()));
  }

  void run(uint32_t sequence) {
    for (Head& head : draw.heads) head.sequence = sequence;
    std::vector<uint32_t> weights(static_cast<size_t>(length_));
    std::vector<uint64_t> blocks(static_cast<size_t>(length_ / 32));
    drawForGroup(&draw, weights.data(), blocks.data(), &selection_);
  }

  const ScoredHead& scored(size_t h) const { return *heads_[h]; }

  GroupDraw draw;

 private:
  MethodOptions options_;
  Selection selection_;
  int length_ = 0;
  std::vector<std::unique_ptr<ScoredHead>> heads_;
};

// The prefix sums of the integers that keys of the mixture have, as the header defines them.
std::vector<uint64_t> prefixesOf(const DrawnGroup& group, int first) {
  __extension__ using Wide = unsigned __int128;
  const int n = group.scored(0).n();
  double budget = 0;
  for (const Head& head : group.draw.heads) budget += head.budget;
  std::vector<float> p(static_cast<size_t>(n), 0.0f);
  std::vector<double> shares(static_cast<size_t>(n) / 256 + 1, 0.0);
  for (size_t h = 0; h < group.draw.heads.size(); ++h) {
    const uint32_t* w = group.scored(h).head.weights;
    const uint64_t total = std::accumulate(w + first, w + n, uint64_t{0});
    const double share = group.draw.heads[h].budget / budget / static_cast<double>(total);
    for (int j = first; j < n; ++j) {
      p[j] = std::fma(static_cast<float>(share), static_cast<float>(w[j]), p[j]);
    }
    for (int t = 0; t * 256 < n; ++t) {
      const int from = std::max(t * 256, first), to = std::min(t * 256 + 256, n);
      const uint64_t sum = from < to ? std::accumulate(w + from, w + to, uint64_t{0}) : 0;
      shares[t] = std::fma(share, static_cast<double>(sum), shares[t]);
    }
  }
  std::vector<uint64_t> prefixes(static_cast<size_t>(n), 0);
  uint64_t before = 0;
  for (int t = 0; t * 256 < n; ++t) {
    const auto units = static_cast<float>(0x1p24 / shares[t]);
    const auto mass = static_cast<uint64_t>(std::ceil(0x1p30 * shares[t]));
    std::vector<uint64_t> sums;
    for (int j = t * 256; j < std::min(t * 256 + 256, n); ++j) {
      const uint64_t key = j < first ? 0 : static_cast<uint64_t>(std::ceil(p[j] * units));
      sums.push_back((sums.empty() ? 0 : sums.back()) + key);
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const Wide reached =
          sums.back() > 0 ? static_cast<Wide>(mass << 31) * sums[i] / sums.back() : 0;
      prefixes[static_cast<size_t>(t) * 256 + i] = (before << 31) + static_cast<uint64_t>(reached);
    }
    before += mass;
  }
  return prefixes;
}

std::vector<std::vector<float>> normalScores(int heads, int n) {
  std::vector<std::vector<float>> scores;
  for (int h = 0; h < heads; ++h) {
    scores.push_back(randomScores(h % 3 == 2 ? Scores::kPeaked : Scores::kNormal, n, 50 + h));
  }
  return scores;
}

// Groups of every size, budgets by head, windows; the counts are floor(R F_j + u) - floor(R F_{j-1}
// + u), and probabilities are the shares of the integers.
TEST(GroupDraws, CountsAreThoseOfTheMixturesIntegers) {
  for (const int heads : {1, 2, 3, 4, 6, 7, 8, 12, 16}) {
    for (const int n : {40, 700}) {
      for (const int first : {0, 37}) {
        std::vector<uint32_t> budgets(static_cast<size_t>(heads));
        std::iota(budgets.begin(), budgets.end(), 1);
        SCOPED_TRACE(testing::Message() << heads << " heads, " << n << " keys from " << first);
        std::vector<std::vector<float>> scores = normalScores(heads, n);
        for (auto& one : scores) std::fill_n(one.begin(), first, -INFINITY);
        DrawnGroup group(scores, budgets, methodOf("s2anta-sys draws=group"), first);
        const std::vector<uint64_t> prefixes = prefixesOf(group, first);
        const auto total = static_cast<double>(prefixes.back());
        const auto samples = static_cast<uint32_t>(heads * (heads + 1) / 2);
        for (const uint32_t sequence : {0u, 1u, 2u}) {
          group.run(sequence);
          const uint32_t offset = offsetOf(group.draw.heads[0].random(0)[0]);
          const auto expected = systematicReference(prefixes, 0, n, samples, offset);
          std::vector<uint32_t> counts(static_cast<size_t>(n));
          for (size_t i = 0; i < group.draw.rows.size(); ++i) {
            const int j = group.draw.rows[i];
            counts[j] = group.draw.counts[i];
            const uint64_t before = j > 0 ? prefixes[j - 1] : 0;
            EXPECT_EQ(group.draw.probabilities[i],
                      static_cast<double>(prefixes[j] - before) / total);
          }
          EXPECT_EQ(counts, expected);
        }
      }
    }
  }
}

// s2anta-prop makes s2anta-sys's draws, and a group of one those of draws=head, to the bit.
TEST(GroupDraws, GroupsOfOneDrawForThemselves) {
  const Cache cache({.lengths = {300, 40}, .kv_heads = 3, .heads = 3, .seed = 12});
  for (const char* name : {"santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-q4"}) {
    const std::string text = name;
    expectSame(cache.run(methodOf(text)), cache.run(methodOf(text + " draws=group")));
    if (text != "s2anta-q4") {
      expectSame(cache.run(methodOf(text)),
                 cache.run(methodOf(text + " draws=group weights=exact")));
    }
  }
  expectSame(cache.run(methodOf("s2anta-q4 weights=exact")),
             cache.run(methodOf("s2anta-q4 draws=group weights=exact")));
  const Cache four({.lengths = {300, 40}, .kv_heads = 1, .heads = 4, .seed = 12});
  expectSame(four.run(methodOf("s2anta-sys draws=group")),
             four.run(methodOf("s2anta-prop tileSize=16 draws=group")));
}

// No key is lost that a head gives an integer weight. What is lost is below 2^-31 of the head's
// largest weight, for each key.
TEST(GroupDraws, RoundingLosesLittleAttention) {
  std::vector<float> flat(600, 0.0f), peaked(600, -60.0f);
  peaked[0] = 0;
  peaked[1] = -30.9f * std::log(2.0f);  // rounds to one unit
  peaked[2] = -31.1f * std::log(2.0f);  // rounds to none
  for (int j = 300; j < 600; ++j) flat[j] = -60;
  DrawnGroup group({peaked, peaked}, {4, 4}, methodOf("s2anta-sys draws=group"));
  group.run(0);
  EXPECT_GT(group.draw.proposal[1], 0.0f);
  EXPECT_EQ(group.draw.proposal[2], 0.0f);
  const std::vector<uint64_t> prefixes = prefixesOf(group, 0);
  EXPECT_GE(prefixes[1] - prefixes[0], 127u);
  EXPECT_EQ(prefixes[2] - prefixes[1], 0u);
  // Beside a flat head each of its keys can be drawn.
  DrawnGroup mixed({peaked, flat}, {1, 1000000}, methodOf("s2anta-sys draws=group"));
  mixed.run(0);
  EXPECT_EQ(mixed.draw.rows.size(), 300u);
  const std::vector<uint64_t> all = prefixesOf(mixed, 0);
  for (int j = 1; j < 300; ++j) EXPECT_GT(all[j], all[j - 1]);
  EXPECT_EQ(all[599], all[300]);
}

// ---- Means and variances

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

// ---- Bounds on weights

// The largest a_hj / p_j over keys that draws of many streams find.
double largestRatio(DrawnGroup* group, const std::vector<double>& attention) {
  double most = 0;
  for (uint32_t sequence = 0; sequence < 50; ++sequence) {
    group->run(sequence);
    for (size_t i = 0; i < group->draw.rows.size(); ++i) {
      most = std::max(most, attention[group->draw.rows[i]] / group->draw.probabilities[i]);
    }
  }
  return most;
}

std::vector<double> attentionOf(const std::vector<float>& scores) {
  std::vector<double> a(scores.begin(), scores.end());
  double total = 0;
  for (double& x : a) total += x = std::exp(x);
  for (double& x : a) x /= total;
  return a;
}

// B / b_h: a head that attends where no other does nearly has it.
TEST(GroupDraws, WeightsAreBounded) {
  for (const int heads : {2, 4, 8}) {
    std::vector<std::vector<float>> scores(static_cast<size_t>(heads), std::vector<float>(300));
    for (int h = 0; h < heads; ++h) {
      for (int j = 0; j < 300; ++j) scores[h][j] = (j < 150) == (h == 0) ? 0.0f : -30.0f;
    }
    for (const uint32_t own : {1u, 5u}) {
      std::vector<uint32_t> budgets(static_cast<size_t>(heads), 5);
      budgets[0] = own;
      DrawnGroup group(scores, budgets, methodOf("s2anta-strat draws=group"));
      const double bound = (own + 5.0 * (heads - 1)) / own;
      const double most = largestRatio(&group, attentionOf(scores[0]));
      EXPECT_LE(most, bound * (1 + 0x1p-15));
      EXPECT_GT(most, bound * 0.999);
      // Nowhere more, whatever the scores.
      const auto random = normalScores(heads, 700);
      DrawnGroup other(random, budgets, methodOf("s2anta-strat draws=group"));
      EXPECT_LE(largestRatio(&other, attentionOf(random[0])), bound * (1 + 0x1p-15));
    }
  }
}

// With proposals from scores that are wrong by up to delta the bound is exp(2 delta) times that.
TEST(GroupDraws, WeightsFromAShadowAreBounded) {
  const float delta = 0.3f;
  std::vector<float> exact(300), proposed(300);
  for (int j = 0; j < 300; ++j) {
    // Few keys whose scores are too low, among many whose scores are too high.
    exact[j] = 0;
    proposed[j] = j % 100 == 0 ? -delta : delta;
  }
  DrawnGroup group({proposed, std::vector<float>(300, 0.0f)}, {10, 10},
                   methodOf("s2anta-strat draws=group"));
  EXPECT_LE(largestRatio(&group, attentionOf(exact)), 2 * std::exp(2 * delta));
  std::vector<float> elsewhere(300, -30.0f);
  elsewhere[1] = 0;
  DrawnGroup alone({proposed, elsewhere}, {20, 20}, methodOf("s2anta-strat draws=group"));
  const double most = largestRatio(&alone, attentionOf(exact));
  EXPECT_LE(most, 2 * std::exp(2 * delta));
  EXPECT_GT(most, 2 * std::exp(2 * delta) * 0.97);
}

// 4 G with norms in the proposal: nearly so for a key without a value that one head attends to.
TEST(GroupDraws, WeightsWithNormsAreBounded) {
  const int heads = 4;
  Cache cache({.lengths = {300}, .heads = heads, .head_dim = kDim, .seed = 3});
  std::fill_n(cache.value(0, 0, 7), kDim, 0.0f);
  cache.write();
  std::vector<std::vector<float>> scores(heads, std::vector<float>(300, 0.0f));
  for (int h = 0; h < heads; ++h) scores[h][7] = h == 0 ? 20.0f : -30.0f;
  DrawnGroup group(scores, std::vector<uint32_t>(heads, 10),
                   methodOf("s2anta-strat draws=group proposal=attention-norm"));
  for (Head& head : group.draw.heads) {
    head.kv = &cache.pool.kv;
    head.pages = cache.table.data();
  }
  const double most = largestRatio(&group, attentionOf(scores[0]));
  EXPECT_LE(most, 4.0 * heads * (1 + 0x1p-15));
  EXPECT_GT(most, 4.0 * heads * 0.999);
}

// ---- What a group reads

TEST(GroupDraws, AGroupReadsItsDrawOnce) {
  Cache cache(
      {.lengths = {900}, .kv_heads = 2, .heads = 8, .element = Element::kBFloat16, .seed = 6});
  // A silent head, an own budget each, and a group with budgets for every key together.
  const std::vector<uint32_t> budgets = {0, 10, 20, 30, 300, 300, 0, 300};
  for (const char* text : {"s2anta-sys draws=group", "s2anta-q4 draws=group"}) {
    const Cache::Result run = cache.run(methodOf(text), withBudgets(cache, budgets));
    const Cache::Result dense = cache.run(methodOf("dense"), withBudgets(cache, budgets));
    EXPECT_EQ(run.heads[0].unique_rows, 0u);
    for (int d = 0; d < 64; ++d) EXPECT_EQ(run.out[d], 0.0f);
    uint32_t draws = 0;
    for (int h = 1; h < 4; ++h) {
      EXPECT_EQ(run.heads[h].draws, budgets[h]);
      EXPECT_EQ(run.heads[h].unique_rows, run.groups[0].unique_rows);
      draws += run.heads[h].draws;
    }
    EXPECT_LE(run.groups[0].unique_rows, draws);
    EXPECT_GT(run.groups[0].unique_rows, draws / 2);
    // 900 draws for 900 keys are exact attention for every head that has a budget.
    for (int h = 4; h < 8; ++h) {
      EXPECT_EQ(run.heads[h].draws, h == 6 ? 0u : 900u);
      for (int d = h * 64; d < (h + 1) * 64; ++d) EXPECT_EQ(run.out[d], dense.out[d]);
    }
  }
}

// A head's part of the mixture is its budget's share: the other heads' budgets change its draws.
TEST(GroupDraws, BudgetsWeighTheMixture) {
  const auto scores = normalScores(2, 300);
  DrawnGroup even(scores, {10, 10}, methodOf("s2anta-sys draws=group"));
  DrawnGroup uneven(scores, {19, 1}, methodOf("s2anta-sys draws=group"));
  EXPECT_NE(prefixesOf(even, 0), prefixesOf(uneven, 0));
  double first = 0;  // the share of the mixture where the first head has more attention
  const auto a = attentionOf(scores[0]), b = attentionOf(scores[1]);
  const auto shareOf = [&](DrawnGroup& group) {
    group.run(0);
    first = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      if (a[j] > b[j]) first += static_cast<double>(group.draw.proposal[j]);
    }
    return first;
  };
  EXPECT_GT(shareOf(uneven), shareOf(even) + 0.1);
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

TEST(GroupDraws, RefusalsSayWhatIsMissing) {
  MethodOptions options;
  const auto refused = [&](const char* text) { return parseMethod(text, &options).value_or(""); };
  EXPECT_EQ(refused("s2anta-sys weights=exact"),
            "weights=exact needs draws=group: a head's own draws have equal weights");
  EXPECT_EQ(refused("s2anta-q4 weights=centred"), "weights=centred needs draws=group");
  EXPECT_EQ(refused("santa proposal=attention-norm"), "proposal=attention-norm needs draws=group");
  EXPECT_EQ(refused("s2anta-prop draws=group rounding=largest-remainder"),
            "rounding=largest-remainder is for draws=head: a group draws from all tiles at once");
  EXPECT_EQ(refused("s2anta-flash draws=group"),
            "s2anta-flash has no such parameter; it takes tileSize, exactAbove");
  EXPECT_EQ(refused("s2anta-sys draws=group proposal=attention-norm weights=centred"), "");
  EXPECT_EQ(methodText(options), "s2anta-sys draws=group proposal=attention-norm weights=centred");
  EXPECT_EQ(gpuUnsupported(options), "the GPU's s2anta-sys takes draws=head, not group");

  EXPECT_EQ(parseMethod("s2anta-sys draws=group weights=centred", &options, Phase::kPrefill),
            "weights=centred does not read prompts: means of values are kept for answers alone");
  Prompt prompt({.lengths = {100}, .heads = 4});
  DecodeWorkspace workspace;
  std::vector<float> out(prompt.queries.size());
  EXPECT_EQ(attendQueries(methodOf("s2anta-sys draws=group weights=centred"), prompt.cache.pool.kv,
                          prompt.inputs(), {.budget = 4}, &workspace, {.out = out.data()}),
            "weights=centred does not read prompts: means of values are kept for answers alone");

  Cache cache({.lengths = {100}, .heads = 4});
  cache.budgets = {4};
  EXPECT_EQ(cache.refusal(methodOf("s2anta-sys draws=group weights=centred"), cache.inputs()),
            "s2anta-sys weights=centred needs sums of values, but the cache holds none");
  cache.budgets = {1u << 23};
  EXPECT_EQ(cache.refusal(methodOf("s2anta-sys draws=group exactAbove=never"), cache.inputs()),
            "budgets[0] = 8388608 is beyond 4194304, the most draws that are made with "
            "exactAbove=never and draws=group");
}

}  // namespace
}  // namespace allot::kernels
