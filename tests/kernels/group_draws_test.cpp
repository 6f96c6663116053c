// draws=group: what is drawn, from integers that are computed here once more; the bounds on
// weights; what a group reads, and what is refused.
#include "kernels/cpu/group_draws.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "kernels/cpu/draws.h"
#include "tests/kernels/prompt.h"

namespace allot::kernels {
namespace {

constexpr int kDim = 16;

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
    drawForGroup(&draw, &selection_);
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
  std::vector<uint64_t> masses(static_cast<size_t>(n), 0);
  for (size_t h = 0; h < group.draw.heads.size(); ++h) {
    const float* exponentials = group.scored(h).head.exp_weights;
    std::vector<uint64_t> weights(static_cast<size_t>(n), 0);
    std::vector<int> gaps;
    uint64_t total = 0;
    for (int t = 0; t * 256 < n; ++t) {
      const int from = std::max(t * 256, first), to = std::min(t * 256 + 256, n);
      double largest = 0;
      for (int j = from; j < to; ++j) largest = std::max<double>(largest, exponentials[j]);
      int gap = 0;
      while (gap < 48 && std::ldexp(largest, gap) <= 0.5) ++gap;
      gaps.push_back(gap);
      Wide sum = 0;
      for (int j = from; gap < 48 && j < to; ++j) {
        weights[j] = static_cast<uint64_t>(
            std::floor(std::ldexp(static_cast<double>(exponentials[j]), 30 + gap) + 0.5));
        sum += weights[j];
      }
      // 2^(9 - gap) times the sum, rounded, ties up.
      total += static_cast<uint64_t>(((sum << 9 << 1) + (Wide{1} << gap)) >> gap >> 1);
    }
    const double share = group.draw.heads[h].budget / budget;
    const double factor = std::ceil(std::ldexp(share, 69) / static_cast<double>(total));
    for (int j = first; j < n; ++j) {
      const double own = std::ceil(std::ldexp(factor, -gaps[j / 256]));
      masses[j] += static_cast<uint64_t>(own) * weights[j];
    }
  }
  std::partial_sum(masses.begin(), masses.end(), masses.begin());
  return masses;
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

// A key is lost if every head's weight is below half a unit, 2^-30 of the power of two above that
// head's largest in the key's piece, or if that power is 2^-48 of the head's or less.
TEST(GroupDraws, RoundingLosesLittleAttention) {
  const auto powers = [](double k) { return static_cast<float>(-k * std::log(2.0)); };
  std::vector<float> flat(900, 0.0f), peaked(900, -70.0f);
  peaked[0] = 0;
  peaked[1] = powers(30.9);  // rounds to one unit
  peaked[2] = powers(31.1);  // rounds to none
  peaked[300] = powers(47.5);
  peaked[600] = powers(48.5);
  for (int j = 300; j < 900; ++j) flat[j] = -60;
  DrawnGroup group({peaked, peaked}, {4, 4}, methodOf("s2anta-sys draws=group"));
  group.run(0);
  const auto& masses = group.draw.masses;
  EXPECT_GE(masses[1], 127u);
  EXPECT_EQ(masses[2], 0u);
  EXPECT_GT(masses[300], 0u);
  EXPECT_EQ(masses[600], 0u);
  // Beside a flat head each of its keys can be drawn.
  DrawnGroup mixed({peaked, flat}, {1, 1000000}, methodOf("s2anta-sys draws=group"));
  mixed.run(0);
  EXPECT_EQ(mixed.draw.rows.size(), 300u);
  for (int j = 0; j < 300; ++j) EXPECT_GT(mixed.draw.masses[j], 0u);
}

// The integers of all keys are some 2^60 at every shape, the most that n, the number of heads and
// their budgets can give: thresholds are exact below 2^62.
TEST(GroupDraws, IntegersHaveRoom) {
  for (const int heads : {1, 16}) {
    for (const float depth : {0.0f, -20.0f, -40.0f}) {
      std::vector<std::vector<float>> scores(static_cast<size_t>(heads));
      for (auto& one : scores) {
        one.assign(100000, depth);
        one[77] = 0;
      }
      std::vector<uint32_t> budgets(static_cast<size_t>(heads), 1);
      budgets[0] = 1u << 21;
      DrawnGroup group(scores, budgets, methodOf("s2anta-sys draws=group"));
      group.run(0);
      const double total = std::accumulate(group.draw.masses.begin(), group.draw.masses.end(), 0.0);
      EXPECT_GE(total, 0x1p60);
      EXPECT_LE(total, 0x1p60 * (1 + 2 * heads * 100000 * 0x1p-30));
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
      EXPECT_LE(most, bound * (1 + 0x1p-17));
      EXPECT_GT(most, bound * 0.999);
      // Nowhere more, whatever the scores.
      const auto random = normalScores(heads, 700);
      DrawnGroup other(random, budgets, methodOf("s2anta-strat draws=group"));
      EXPECT_LE(largestRatio(&other, attentionOf(random[0])), bound * (1 + 0x1p-17));
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
  EXPECT_LE(most, 4.0 * heads * (1 + 0x1p-17));
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
      if (a[j] > b[j]) first += static_cast<double>(group.draw.masses[j]);
    }
    return first / 0x1p60;
  };
  EXPECT_GT(shareOf(uneven), shareOf(even) + 0.1);
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
  EXPECT_EQ(gpuUnsupported(options),
            "the GPU's s2anta-sys takes proposal=attention, not attention-norm");

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

  Cache longer({.lengths = {100}, .heads = 4});
  const std::vector<int32_t> length = {1 << 24};
  for (const char* text : {"s2anta-sys draws=group", "top-k choose=group"}) {
    DecodeInputs in = longer.inputs();
    in.lengths = length.data();
    EXPECT_EQ(longer.refusal(methodOf(text), in),
              "lengths[0] = 16777216 is too long: heads that share rows take fewer than 16777216 "
              "keys; with draws=head or choose=head there may be more");
  }
}

}  // namespace
}  // namespace allot::kernels
