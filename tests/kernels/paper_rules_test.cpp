// The papers' own rules where this library's defaults are others, exactly: draws where there are as
// many as keys or more, tiles' draws by largest remainders, tiles by the row's length, sinks and
// newest keys by share. What these cost is in paper_costs_test.cpp.
#include <set>

#include "allot/kernels/philox.h"
#include "kernels/cpu/key_scores.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

std::set<uint32_t> budgetsAround(int n) {
  const auto keys = static_cast<uint32_t>(n);
  return {1, std::max(keys - 1, 1u), keys, keys + 1, 4 * keys};
}

// ---- rounding=largest-remainder ----

// Scores with all weight but e^-36 or so in the first key.
std::vector<float> firstKeyDominates(int n) {
  std::vector<float> scores = randomScores(Scores::kNormal, n, 5);
  scores[0] = 40;
  return scores;
}

// Draws of each tile by the paper's Algorithm 4, from its words: q_t = S W_t / Z as a fraction of
// whole numbers, floors, and one more in order of the fractions; of equal ones the older first.
std::vector<uint32_t> tileDraws(const std::vector<uint64_t>& masses, uint32_t budget) {
  const uint64_t total = std::accumulate(masses.begin(), masses.end(), uint64_t{0});
  std::vector<uint32_t> draws;
  std::vector<std::pair<uint64_t, size_t>> fractions;  // of q_t, in units of 1 / Z
  for (size_t t = 0; t < masses.size(); ++t) {
    const Wide q = static_cast<Wide>(masses[t]) * budget;
    draws.push_back(static_cast<uint32_t>(q / total));
    fractions.emplace_back(static_cast<uint64_t>(q % total), t);
  }
  std::stable_sort(fractions.begin(), fractions.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const uint32_t floors = std::accumulate(draws.begin(), draws.end(), 0u);
  for (uint32_t i = 0; i < budget - floors; ++i) ++draws[fractions.at(i).second];
  return draws;
}

void expectAlgorithms4And5(ScoredHead* scored, int tile, uint32_t budget) {
  scored->head.budget = budget;
  ++scored->head.sequence;
  const int n = scored->n();
  std::vector<uint64_t> masses;
  for (int first = 0; first < n; first += tile) {
    const int last = std::min(first + tile, n);
    masses.push_back(scored->prefixes()[last - 1] -
                     (first > 0 ? scored->prefixes()[first - 1] : 0));
  }
  const std::vector<uint32_t> draws = tileDraws(masses, budget);
  const Selection selection = select(selectS2antaProp, *scored);
  const auto counts = countsOf(selection, n);
  std::vector<uint32_t> expected;
  for (size_t t = 0; t < masses.size(); ++t) {
    const int first = static_cast<int>(t) * tile, last = std::min(first + tile, n);
    if (draws[t] == 0) {
      expected.insert(expected.end(), last - first, 0);
      continue;
    }
    const uint32_t offset =
        philox(77, scored->head.sequence, 5, scored->head.stream, static_cast<uint32_t>(t))[0] >> 8;
    const auto own = systematicReference(scored->prefixes(), first, last, draws[t], offset);
    expected.insert(expected.end(), own.begin(), own.end());
  }
  ASSERT_EQ(counts, expected);
  ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), budget);
  ASSERT_EQ(selection.draws, budget);
  for (size_t i = 0; i < selection.rows.size(); ++i) {
    ASSERT_FLOAT_EQ(selection.weights[i], static_cast<float>(selection.counts[i]) / budget);
  }
}

TEST(LargestRemainder, CountsAreThoseOfAlgorithms4And5) {
  for (const int tile : {16, 100, 256}) {
    for (const int n : {1, 2, 15, 16, 17, 33, 100, 257, 1000, 4099}) {
      std::set<uint32_t> budgets = budgetsAround(n);
      budgets.insert({2, 7, 16, 128});
      for (int kind = 0; kind <= static_cast<int>(std::size(kAllScores)); ++kind) {
        const bool first = kind == static_cast<int>(std::size(kAllScores));
        ScoredHead scored(first ? firstKeyDominates(n) : randomScores(kAllScores[kind], n, n));
        scored.options = methodOf("s2anta-prop rounding=largest-remainder exactAbove=never");
        scored.options.tile_size = tile;
        for (const uint32_t budget : budgets) {
          SCOPED_TRACE(testing::Message() << n << " keys in tiles of " << tile << ", S " << budget
                                          << ", scores " << kind);
          expectAlgorithms4And5(&scored, tile, budget);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Equal tiles: the remainders tie, and the older tiles have one more.
TEST(LargestRemainder, OlderTilesComeFirstAmongEqualOnes) {
  ScoredHead scored(randomScores(Scores::kEqual, 160, 1));
  scored.options = methodOf("s2anta-prop tileSize=16 rounding=largest-remainder");
  scored.head.budget = 13;  // over ten tiles
  const auto counts = countsOf(select(selectS2antaProp, scored), 160);
  for (int t = 0; t < 10; ++t) {
    const auto first = counts.begin() + t * 16;
    EXPECT_EQ(std::accumulate(first, first + 16, 0u), t < 3 ? 2u : 1u) << t;
  }
}

TEST(LargestRemainder, OneTileIsSystematicSampling) {
  for (const Scores kind : kAllScores) {
    ScoredHead scored(randomScores(kind, 200, 3));
    scored.head.budget = 30;
    scored.options = methodOf("s2anta-prop rounding=largest-remainder");
    const Selection one = select(selectS2antaProp, scored), other = select(selectS2antaSys, scored);
    EXPECT_EQ(one.rows, other.rows);
    EXPECT_EQ(one.counts, other.counts);
  }
}

// ---- exactAbove=never ----

const char* const kDrawing[] = {"santa",
                                "s2anta-strat",
                                "s2anta-sys",
                                "s2anta-prop",
                                "s2anta-prop tileSize=16 rounding=largest-remainder",
                                "s2anta-flash",
                                "s2anta-flash tileSize=16"};

MethodOptions neverExact(const std::string& text) { return methodOf(text + " exactAbove=never"); }

// Rows of n keys, one for each of S = 0, 1, n - 1, n, n + 1 and 4 n.
Cache rowsAround(int n) {
  std::vector<uint32_t> budgets = {0};
  for (const uint32_t budget : budgetsAround(n)) budgets.push_back(budget);
  Cache cache({.lengths = std::vector<int>(budgets.size(), n),
               .kv_heads = 2,
               .heads = 4,
               .head_dim = 32,
               .element = Element::kBFloat16,
               .seed = 12});
  cache.budgets = budgets;
  return cache;
}

// Against the value stage by itself, whose counts counts_test.cpp holds to references: outputs, and
// what is said of them.
TEST(NeverExact, DrawsAreMadeAndCountedHoweverManyThereAre) {
  for (const int n : {1, 2, 17, 33, 300}) {
    const Cache cache = rowsAround(n);
    const uint64_t row_bytes = 32 * 2;
    for (const char* text : kDrawing) {
      const MethodOptions method = neverExact(text);
      const auto run = cache.run(method);
      for (int r = 0; r < cache.rows(); ++r) {
        const uint32_t budget = cache.budgets[r];
        std::set<int> together[2];
        for (int h = 0; h < 4; ++h) {
          SCOPED_TRACE(testing::Message() << text << ", n " << n << ", S " << budget);
          const HeadStatistics& head = run.heads[r * 4 + h];
          const float* out = run.out.data() + (r * 4 + h) * 32;
          if (budget == 0) {
            EXPECT_EQ(head.draws + head.unique_rows + head.value_bytes, 0u);
            for (int d = 0; d < 32; ++d) EXPECT_EQ(out[d], 0);
            continue;
          }
          std::vector<float> scores(n);
          exactScores({&cache.pool.kv, cache.table.data() + r * cache.max_pages, h / 2, n},
                      cache.queries.data() + (r * 4 + h) * 32, 1, cache.scale, scores.data(), n);
          ScoredHead scored(scores);
          scored.options = method;
          scored.head.budget = budget;
          scored.head.sequence = cache.sequences[r];
          scored.head.stream = 3 << 16 | h;
          const Selection selection = select(selectOf(method.method), scored);
          std::vector<double> expected(32);
          for (size_t i = 0; i < selection.rows.size(); ++i) {
            const auto at = (static_cast<size_t>(selection.rows[i]) * 2 + h / 2) * 32;
            for (int d = 0; d < 32; ++d)
              expected[d] += selection.weights[i] * cache.values[r][at + d];
          }
          for (int d = 0; d < 32; ++d) EXPECT_NEAR(out[d], expected[d], 4e-6);
          EXPECT_EQ(head.draws, selection.draws);
          if (method.method != Method::kS2antaFlash) {
            EXPECT_EQ(head.draws, budget);
          }
          EXPECT_EQ(head.unique_rows, selection.rows.size());
          EXPECT_EQ(head.value_bytes, selection.rows.size() * row_bytes);
          EXPECT_EQ(head.key_bytes, n * row_bytes);
          together[h / 2].insert(selection.rows.begin(), selection.rows.end());
        }
        const uint64_t rows = together[0].size() + together[1].size();
        EXPECT_EQ(run.statistics[r].group_rows, rows);
        EXPECT_EQ(run.statistics[r].value_bytes, rows * row_bytes);
      }
    }
  }
}

// Below as many draws as keys nothing differs, to the bit; from there on the default is dense.
TEST(NeverExact, BelowAllKeysItIsTheSameMethod) {
  const Cache cache = rowsAround(200);
  const auto dense = cache.run(methodOf("dense"));
  std::vector<std::string> texts(std::begin(kDrawing), std::end(kDrawing));
  for (const char* text : {"s2anta-q4", "bernoulli values=santa"}) texts.emplace_back(text);
  for (const std::string& text : texts) {
    const auto never = cache.run(neverExact(text)), keys = cache.run(methodOf(text));
    for (int r = 0; r < cache.rows(); ++r) {
      const bool fewer = cache.budgets[r] < 200;
      const size_t begin = r * 4 * 32, end = begin + 4 * 32;
      const bool same =
          std::equal(never.out.begin() + begin, never.out.begin() + end, keys.out.begin() + begin);
      EXPECT_EQ(same, fewer) << text << ", S " << cache.budgets[r];
      EXPECT_EQ(never.statistics[r].unique_rows == keys.statistics[r].unique_rows, fewer) << text;
      if (fewer || text.starts_with("bernoulli")) continue;
      EXPECT_TRUE(
          std::equal(keys.out.begin() + begin, keys.out.begin() + end, dense.out.begin() + begin))
          << text;
    }
  }
}

// The shadow's draws, and the exact keys of what was drawn beside it.
TEST(NeverExact, DrawsFromAShadowCountBothReads) {
  const Cache cache = rowsAround(200);
  const auto run = cache.run(neverExact("s2anta-q4"));
  for (int r = 1; r < cache.rows(); ++r) {
    for (int h = 0; h < 4; ++h) {
      const HeadStatistics& head = run.heads[r * 4 + h];
      EXPECT_EQ(head.draws, cache.budgets[r]);
      EXPECT_LT(head.unique_rows, 200u);
      EXPECT_EQ(head.value_bytes, head.unique_rows * uint64_t{64});
      EXPECT_EQ(head.key_bytes, 200 * (32 / 2 + 4) + head.unique_rows * uint64_t{64});
    }
  }
}

// What chooses keys instead of drawing them is exact from all keys on, whatever is said.
TEST(NeverExact, IsForDrawsAlone) {
  for (const char* text : {"bernoulli values=top-k", "bernoulli"}) {
    EXPECT_TRUE(exactFromAllKeys(neverExact(text))) << text;
  }
  EXPECT_FALSE(exactFromAllKeys(neverExact("bernoulli values=s2anta-sys")));
  for (const std::string_view name : methodNames()) {
    EXPECT_TRUE(exactFromAllKeys(methodOf(name))) << name;
  }
}

// A draw is memory: so many are refused, before anything is made room for.
TEST(NeverExact, MoreDrawsThanAWeightCountsAreRefused) {
  Cache cache({.lengths = {20, 20}, .heads = 2});
  cache.budgets = {5, kMostDraws + 1};
  EXPECT_EQ(cache.refusal(neverExact("santa"), cache.inputs()),
            "budgets[1] = 16777217 is beyond 16777216, the most draws that are made with "
            "exactAbove=never");
  const std::vector<uint32_t> budgets = {1, 2, 3, UINT32_MAX};
  const DecodeInputs in = withBudgets(cache, budgets);
  EXPECT_EQ(
      cache.refusal(neverExact("bernoulli values=s2anta-flash"), in).rfind("budgets[3] = ", 0), 0u);
  EXPECT_EQ(cache.refusal(methodOf("santa"), in), "");
}

// ---- tileSize=auto ----

// The last lengths of 32 and of 64 keys a tile, and those beside them. A window's keys are the row.
TEST(TilesByLength, AreThoseOfTheAuthorsKernels) {
  const auto expectTiles = [](int n, int window, int tile) {
    SCOPED_TRACE(testing::Message() << n << " keys, window " << window);
    Cache cache({.lengths = {n}, .head_dim = 16, .seed = 3});
    cache.budgets = {400};
    DecodeInputs in = cache.inputs();
    in.window = window;
    for (const std::string text : {"s2anta-flash", "s2anta-prop rounding=largest-remainder"}) {
      const auto automatic = cache.run(methodOf(text + " tileSize=auto"), in);
      for (const int other : {32, 64, 256}) {
        const auto fixed = cache.run(methodOf(text + " tileSize=" + std::to_string(other)), in);
        EXPECT_EQ(automatic.out == fixed.out, other == tile) << text << " " << other;
        if (other != tile) continue;
        EXPECT_EQ(fixed.heads[0].draws, automatic.heads[0].draws);
      }
    }
  };
  for (const auto& [n, tile] : {std::pair{410, 32},
                                {1535, 32},
                                {1536, 32},
                                {1537, 64},
                                {3071, 64},
                                {3072, 64},
                                {3073, 256},
                                {5000, 256}}) {
    expectTiles(n, 0, tile);
  }
  expectTiles(5000, 1536, 32);
  expectTiles(5000, 3000, 64);
  expectTiles(5000, 3073, 256);
}

// ---- sink and local as shares ----

TEST(Shares, AreCountsRoundedUp) {
  for (const auto& [n, window, sink, local] : {std::tuple{1, 0, 1, 1},
                                               {99, 0, 1, 2},
                                               {100, 0, 1, 2},
                                               {101, 0, 2, 3},
                                               {1000, 0, 10, 20},
                                               {1001, 0, 11, 21},
                                               {1000, 101, 2, 3}}) {
    SCOPED_TRACE(testing::Message() << n << " keys, window " << window);
    const Cache cache({.lengths = {n}, .kv_heads = 2, .heads = 4, .seed = 4});
    DecodeInputs in = cache.inputs();
    in.window = window;
    for (const std::string name : {"vattention epsilon=0.9 ", "adaptive-denominator "}) {
      const auto shares = cache.run(methodOf(name + "sink=0.01 local=0.02"), in);
      const auto counts = cache.run(
          methodOf(name + "sink=" + std::to_string(sink) + " local=" + std::to_string(local)), in);
      EXPECT_EQ(shares.out, counts.out);
      EXPECT_EQ(shares.statistics[0].unique_rows, counts.statistics[0].unique_rows);
      const auto fewer = cache.run(
          methodOf(name + "sink=" + std::to_string(sink - 1) + " local=" + std::to_string(local)),
          in);
      EXPECT_TRUE(n == 1 || shares.out != fewer.out);
    }
    const MethodOptions method = methodOf("vattention sink=0.01 local=0.02");
    EXPECT_EQ(sinkKeys(method, window > 0 ? window : n), sink);
    EXPECT_EQ(localKeys(method, window > 0 ? window : n), local);
  }
  const MethodOptions most = methodOf("vattention sink=0.9 local=0.9");
  EXPECT_EQ(sinkKeys(most, 10), 9);
  EXPECT_EQ(sinkKeys(methodOf("vattention sink=65536"), 10), 10);
  EXPECT_EQ(sinkKeys(methodOf("vattention sink=0"), 10), 0);
}

// ---- texts ----

TEST(PapersRules, HaveOneTextEach) {
  const auto canonical = [](const char* text) { return methodText(methodOf(text)); };
  for (const char* text :
       {"santa", "s2anta-strat", "s2anta-sys", "s2anta-prop", "s2anta-flash", "s2anta-q4",
        "bernoulli values=santa", "vattention", "santa exactAbove=never",
        "s2anta-prop rounding=largest-remainder", "s2anta-flash tileSize=auto",
        "s2anta-flash tileSize=64 exactAbove=never", "vattention sink=0.01 local=0.5",
        "adaptive-denominator sink=0.25", "vattention sink=1"}) {
    EXPECT_EQ(canonical(text), text);
  }
  // What is said and is the default is left out, as is another order or spelling of a number.
  EXPECT_EQ(canonical("santa exactAbove=keys"), "santa");
  EXPECT_EQ(canonical("s2anta-prop rounding=systematic tileSize=256"), "s2anta-prop");
  EXPECT_EQ(canonical("s2anta-prop exactAbove=never rounding=largest-remainder tileSize=auto"),
            "s2anta-prop tileSize=auto rounding=largest-remainder exactAbove=never");
  EXPECT_EQ(canonical("vattention sink=.5 local=5e-1"), "vattention sink=0.5 local=0.5");
  EXPECT_EQ(canonical("vattention sink=16 local=16"), "vattention");
  // A share of few digits reads back as itself.
  MethodOptions small = methodOf("vattention sink=0.0001");
  EXPECT_EQ(methodOf(methodText(small)), small);
  EXPECT_EQ(small.sink, 16u);
}

TEST(PapersRules, OtherValuesAreRefused) {
  const auto refusal = [](const std::string& text) {
    MethodOptions options;
    return parseMethod(text, &options).value_or("");
  };
  for (const char* value : {"", "Never", "n", "0", "always", "keys,never", "never "}) {
    EXPECT_NE(refusal(std::string("santa exactAbove=") + value), "") << value;
  }
  EXPECT_EQ(refusal("santa exactAbove=512"), "exactAbove: a bad value; allowed: keys, never");
  EXPECT_EQ(refusal("top-k exactAbove=never"),
            "top-k has no such parameter; it takes scores, choose");
  EXPECT_EQ(refusal("s2anta-prop rounding=nearest"),
            "rounding: a bad value; allowed: systematic, largest-remainder");
  EXPECT_EQ(refusal("s2anta-flash rounding=systematic"),
            "s2anta-flash has no such parameter; it takes tileSize, exactAbove");
  for (const char* value : {"", "AUTO", "0", "15", "65537", "auto64", "-32", "32.0"}) {
    EXPECT_EQ(refusal(std::string("s2anta-flash tileSize=") + value),
              "tileSize: a bad value; allowed: 16..65536, auto")
        << value;
  }
  for (const char* value : {"", "-1", "65537", "1.0", "0.0", "0.00009", "0.91", "-0.1", "nan",
                            "inf", "1e9", "0.5x", "0x10", "1e-400", "18446744073709551616"}) {
    for (const char* key : {"sink", "local"}) {
      EXPECT_EQ(refusal(std::string("vattention ") + key + "=" + value),
                std::string(key) + ": a bad value; allowed: 0..65536, 0.0001..0.9")
          << value;
    }
  }
}

}  // namespace
}  // namespace allot::kernels
