// Which keys are drawn, as integers: every count equals a brute-force reference in exact rational
// arithmetic. Scores are arbitrary; the weights that draws are made from are integers.
#include <cmath>

#include "allot/kernels/philox.h"
#include "kernels/cpu/draws.h"
#include "kernels/cpu/key_scores.h"
#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

// u of a value stage that needs one number, or of tile `block`.
uint32_t offsetOf(const ScoredHead& scored, uint32_t block = 0) {
  return philox(77, scored.head.sequence, 5, scored.head.stream, block)[0] >> 8;
}

uint32_t total(const std::vector<uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0u);
}

// Lengths and budgets that meet the ends of blocks (32 keys).
struct Case {
  int n;
  uint32_t budget;
};
std::vector<Case> cases() {
  std::vector<Case> list;
  for (const int n : {2, 3, 31, 32, 33, 63, 64, 65, 100, 257, 1000, 4099}) {
    for (const uint32_t budget : {1u, 2u, 7u, 32u, 100u, 1023u, 4096u}) {
      if (budget < static_cast<uint32_t>(n)) list.push_back({n, budget});
    }
    if (n > 3) list.push_back({n, static_cast<uint32_t>(n - 1)});
    // With exactAbove=never draws are made here, too.
    const auto keys = static_cast<uint32_t>(n);
    for (const uint32_t budget : {keys, keys + 1, 4 * keys}) list.push_back({n, budget});
  }
  list.push_back({1, 1});
  list.push_back({1, 9});
  list.push_back({33000, 4096});
  list.push_back({33000, 128});
  return list;
}

template <typename Body>
void forEveryCase(int sequences, const Body& body) {
  uint32_t sequence = 0;
  for (const auto& [n, budget] : cases()) {
    for (const Scores kind : kAllScores) {
      ScoredHead scored(randomScores(kind, n, sequence));
      scored.head.budget = budget;
      for (int i = 0; i < sequences; ++i) {
        scored.head.sequence = ++sequence;
        SCOPED_TRACE("n " + std::to_string(n) + ", S " + std::to_string(budget) + ", scores " +
                     std::to_string(static_cast<int>(kind)));
        body(scored);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(IntegerMasses, AreTheRoundedExponentials) {
  for (const Scores kind : kAllScores) {
    ScoredHead scored(randomScores(kind, 5000, 3));
    const Head& head = scored.head;
    const float top = *std::max_element(head.scores, head.scores + head.n);
    double sum = 0;
    for (int j = 0; j < head.n; ++j) {
      const double gap = static_cast<double>(top) - head.scores[j];
      const double exact = std::exp(-gap) * 0x1p30;
      // exp is good to 2 ulp of a float, s - top to half an ulp of itself; then rounding.
      const double error = exact > 0 ? exact * (4e-7 + 6e-8 * gap) : 0;
      ASSERT_NEAR(head.weights[j], exact, 0.5 + error);
      if (std::isinf(head.scores[j])) {
        ASSERT_EQ(head.weights[j], 0u);
      }
      sum += exact;
    }
    EXPECT_NEAR(head.exp_weight_total * 0x1p30, sum, 1e-6 * sum);
    EXPECT_EQ(*std::max_element(head.weights, head.weights + head.n), 1u << 30);
  }
}

// Small totals and round offsets, where S P_j / total + u is often a whole number: ties that random
// scores never meet.
TEST(SystematicThresholds, MeetTheReferenceAtTies) {
  std::mt19937 random(8);
  int ties = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<uint64_t> prefixes;
    for (uint64_t prefix = 0, n = 1 + random() % 12; prefixes.size() < n;) {
      prefixes.push_back(prefix += random() % 5);
    }
    if (prefixes.back() == 0) continue;
    const uint64_t mass = prefixes.back();
    const uint32_t samples = 1 + random() % 20;
    // A sixteenth, or just below it; or any.
    const uint32_t round = ((random() % 16 << 20) - trial % 2) & 0xffffff;
    const uint32_t offset = trial % 3 == 0 ? random() >> 8 : round;
    const auto counts =
        systematicReference(prefixes, 0, static_cast<int>(prefixes.size()), samples, offset);
    std::vector<uint64_t> thresholds(samples);
    systematicThresholds(mass, samples, offset, thresholds.data());
    std::vector<uint32_t> drawn(prefixes.size());
    for (const uint64_t t : thresholds) {
      ++drawn[std::upper_bound(prefixes.begin(), prefixes.end(), t) - prefixes.begin()];
    }
    ASSERT_EQ(drawn, counts) << "total " << mass << ", S " << samples << ", offset " << offset;
    uint32_t below = 0;
    for (size_t j = 0; j < prefixes.size(); ++j) {
      below += counts[j];
      ASSERT_EQ(systematicDrawsBelow(prefixes[j], mass, samples, offset), below);
      ties +=
          j + 1 < prefixes.size() && prefixes[j] > 0 &&
          ((static_cast<Wide>(prefixes[j]) * samples << 24) + static_cast<Wide>(offset) * mass) %
                  (static_cast<Wide>(mass) << 24) ==
              0;
    }
  }
  EXPECT_GT(ties, 500);
}

TEST(S2antaSys, CountsAreTheReferences) {
  forEveryCase(8, [](const ScoredHead& scored) {
    const uint32_t budget = scored.head.budget;
    const Selection selection = select(selectS2antaSys, scored);
    const auto counts = countsOf(selection, scored.n());
    ASSERT_EQ(counts,
              systematicReference(scored.prefixes(), 0, scored.n(), budget, offsetOf(scored)));
    ASSERT_EQ(total(counts), budget);
    ASSERT_EQ(selection.draws, budget);
    const uint64_t mass = scored.head.weight_total;
    for (int j = 0; j < scored.n(); ++j) {
      const uint64_t share = uint64_t{scored.head.weights[j]} * budget;  // S a_j = share / mass
      ASSERT_GE(counts[j], share / mass);
      ASSERT_LE(counts[j], (share + mass - 1) / mass);
    }
    for (size_t i = 0; i < selection.rows.size(); ++i) {
      ASSERT_FLOAT_EQ(selection.weights[i], static_cast<float>(selection.counts[i]) / budget);
    }
  });
}

// Draws of a list of ascending thresholds, by looking at every key's prefix.
std::vector<uint32_t> countsOf(const std::vector<uint64_t>& thresholds, const ScoredHead& scored) {
  std::vector<uint32_t> counts(scored.n());
  for (const uint64_t threshold : thresholds) {
    const auto& p = scored.prefixes();
    ++counts[std::upper_bound(p.begin(), p.end(), threshold) - p.begin()];
  }
  return counts;
}

TEST(Santa, CountsAreTheReferences) {
  forEveryCase(2, [](const ScoredHead& scored) {
    std::vector<uint64_t> thresholds;
    for (uint32_t m = 0; m < scored.head.budget; ++m) {
      const auto words = philox(77, scored.head.sequence, 5, scored.head.stream, m / 2);
      const uint64_t random = uint64_t{words[m % 2 * 2]} << 32 | words[m % 2 * 2 + 1];
      thresholds.push_back(
          static_cast<uint64_t>(static_cast<Wide>(random) * scored.head.weight_total >> 64));
    }
    const Selection selection = select(selectSanta, scored);
    ASSERT_EQ(countsOf(selection, scored.n()), countsOf(thresholds, scored));
    ASSERT_EQ(total(countsOf(selection, scored.n())), scored.head.budget);
    ASSERT_EQ(selection.draws, scored.head.budget);
  });
}

TEST(S2antaStrat, MakesOneDrawInEachStratum) {
  forEveryCase(2, [](const ScoredHead& scored) {
    const Selection selection = select(selectS2antaStrat, scored);
    const auto counts = countsOf(selection, scored.n());
    const uint64_t budget = scored.head.budget;
    ASSERT_EQ(total(counts), budget);
    ASSERT_EQ(selection.draws, budget);
    // Draws in order of keys: the m-th must be of a key whose weights overlap the m-th stratum,
    // [m, m + 1) / S of the total.
    uint64_t m = 0;
    for (int j = 0; j < scored.n(); ++j) {
      const uint64_t to = scored.prefixes()[j], from = to - scored.head.weights[j];
      for (uint32_t i = 0; i < counts[j]; ++i, ++m) {
        ASSERT_LT(from * budget, (m + 1) * scored.head.weight_total);
        ASSERT_GT(to * budget, m * scored.head.weight_total);
      }
    }
    // And where in its stratum: 32 random bits a draw.
    std::vector<uint64_t> thresholds;
    for (uint32_t i = 0; i < budget; ++i) {
      const uint32_t word = philox(77, scored.head.sequence, 5, scored.head.stream, i / 4)[i % 4];
      thresholds.push_back(
          static_cast<uint64_t>((static_cast<Wide>(i) << 32 | word) * scored.head.weight_total /
                                (static_cast<Wide>(budget) << 32)));
    }
    ASSERT_EQ(counts, countsOf(thresholds, scored));
  });
}

void expectEqualDraws(const Selection& a, const Selection& b) {
  ASSERT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.counts, b.counts);
  ASSERT_EQ(a.weights, b.weights);
  ASSERT_EQ(a.draws, b.draws);
}

TEST(S2antaProp, DrawsAreThoseOfS2antaSys) {
  for (const uint32_t tile : {16u, 17u, 32u, 64u, 100u, 256u, 1000u, 65536u}) {
    forEveryCase(1, [tile](ScoredHead& scored) {
      scored.options.tile_size = tile;
      expectEqualDraws(select(selectS2antaProp, scored), select(selectS2antaSys, scored));
    });
    if (HasFatalFailure()) return;
  }
}

// The numbers of tiles at which the released code's sort loses tiles, and their neighbours.
TEST(S2antaProp, AnyNumberOfTilesAndRaggedTails) {
  uint32_t sequence = 0;
  for (const int tiles : {1, 2, 3, 100, 117, 118, 127, 128, 129, 130, 160, 192, 200, 255, 256}) {
    for (const int tile : {16, 100, 128}) {
      for (const int missing : {0, 1, tile - 1}) {
        const int n = tiles * tile - missing;
        if (n < 2) continue;
        for (const Scores kind : kAllScores) {
          ScoredHead scored(randomScores(kind, n, ++sequence));
          scored.options.tile_size = tile;
          for (const uint32_t budget : {1, 16, 128, 256, 1024, 4096}) {
            if (budget >= static_cast<uint32_t>(n)) continue;
            scored.head.budget = budget;
            scored.head.sequence = ++sequence;
            expectEqualDraws(select(selectS2antaProp, scored), select(selectS2antaSys, scored));
            ASSERT_FALSE(HasFatalFailure()) << tiles << " tiles of " << tile << ", n = " << n;
          }
        }
      }
    }
  }
}

TEST(S2antaFlash, EveryTileMakesItsOwnSystematicDraws) {
  for (const int tile : {16, 64, 100, 256}) {
    forEveryCase(2, [tile](ScoredHead& scored) {
      scored.options.tile_size = tile;
      const int n = scored.n();
      const uint32_t tiles = (n + tile - 1) / tile;
      const uint32_t samples = std::max(1u, scored.head.budget / tiles);
      const Selection selection = select(selectS2antaFlash, scored);
      const auto counts = countsOf(selection, n);
      std::vector<double> weights(n);
      for (size_t i = 0; i < selection.rows.size(); ++i) {
        weights[selection.rows[i]] = selection.weights[i];
      }
      uint32_t live = 0;
      for (uint32_t t = 0; t < tiles; ++t) {
        const int first = static_cast<int>(t) * tile, last = std::min(first + tile, n);
        const uint64_t before = t > 0 ? scored.prefixes()[first - 1] : 0;
        const uint64_t mass = scored.prefixes()[last - 1] - before;
        const std::vector<uint32_t> drawn(counts.begin() + first, counts.begin() + last);
        if (mass == 0) {
          ASSERT_EQ(total(drawn), 0u);
          continue;
        }
        ++live;
        ASSERT_EQ(total(drawn), samples);
        ASSERT_EQ(drawn, systematicReference(scored.prefixes(), first, last, samples,
                                             offsetOf(scored, t)));
        const double share =
            static_cast<double>(mass) / static_cast<double>(scored.head.weight_total);
        for (int j = first; j < last; ++j) {
          ASSERT_NEAR(weights[j], counts[j] * share / samples, 1e-6 * weights[j]);
        }
      }
      // T S_t but for tiles without mass; not S.
      ASSERT_EQ(selection.draws, live * samples);
    });
    if (HasFatalFailure()) return;
  }
}

TEST(Draws, AMillionEqualKeys) {
  const int n = 1 << 20;
  ScoredHead scored(randomScores(Scores::kEqual, n, 1));
  ASSERT_EQ(scored.head.weight_total, uint64_t{1} << 50);
  for (const uint32_t budget : {3u, 4096u, static_cast<uint32_t>(n - 1)}) {
    scored.head.budget = budget;
    scored.head.sequence = budget;
    const Selection sys = select(selectS2antaSys, scored);
    ASSERT_EQ(countsOf(sys, n),
              systematicReference(scored.prefixes(), 0, n, budget, offsetOf(scored)));
    expectEqualDraws(select(selectS2antaProp, scored), sys);
    for (const SelectFunction function : {selectSanta, selectS2antaStrat}) {
      EXPECT_EQ(total(countsOf(select(function, scored), n)), budget);
    }
    const uint32_t tiles = n / 256;
    EXPECT_EQ(select(selectS2antaFlash, scored).draws, tiles * std::max(1u, budget / tiles));
  }
}

TEST(TopK, KeepsTheLargestAndTheOlderOfEqual) {
  forEveryCase(1, [](const ScoredHead& scored) {
    const Head& head = scored.head;
    if (head.budget >= static_cast<uint32_t>(head.n)) return;  // never asked for
    std::vector<int32_t> order(head.n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return head.scores[a] > head.scores[b]; });
    order.resize(head.budget);
    double kept = 0;
    for (const int j : order) kept += std::exp(static_cast<double>(head.scores[j]) - head.top);
    std::sort(order.begin(), order.end());
    Selection selection = select(selectTopK, scored);
    ASSERT_EQ(selection.rows, order);
    for (size_t i = 0; i < order.size(); ++i) {
      const double exact = std::exp(static_cast<double>(head.scores[order[i]]) - head.top) / kept;
      ASSERT_NEAR(selection.weights[i], exact, 1e-5 * exact);
    }
  });
}

// decodeAttention makes the same draws: its outputs are the references' counts times the values,
// for every row, head, group size, bias and element.
TEST(Decode, OutputsAreTheReferencesCountsTimesTheValues) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
    Cache cache({.lengths = {150, 33, 700}, .kv_heads = 2, .heads = 6, .element = element});
    cache.budgets = {20, 32, 97};
    cache.bias_stride = 701;
    cache.bias = normals(3 * 701, 5);
    for (size_t i = 0; i < cache.bias.size(); i += 7) {
      cache.bias[i] = -std::numeric_limits<float>::infinity();
    }
    for (const char* name : {"s2anta-sys", "s2anta-prop tileSize=100"}) {
      const auto run = cache.run(methodOf(name));
      for (int r = 0; r < 3; ++r) {
        for (int h = 0; h < 6; ++h) {
          const int n = cache.lengths[r];
          std::vector<float> scores(n);
          exactScores({&cache.pool.kv, cache.table.data() + r * cache.max_pages, h / 3, n},
                      cache.query(r, h), 1, cache.scale, scores.data(), n);
          for (int j = 0; j < n; ++j) scores[j] += cache.bias[r * 701 + j];
          const ScoredHead scored(scores);
          const uint32_t offset = philox(77, 100 + r, 5, 3 << 16 | h, 0)[0] >> 8;
          const auto counts =
              systematicReference(scored.prefixes(), 0, n, cache.budgets[r], offset);
          const HeadStatistics& statistics = run.heads[r * 6 + h];
          EXPECT_EQ(statistics.draws, cache.budgets[r]);
          EXPECT_EQ(statistics.unique_rows, n - std::count(counts.begin(), counts.end(), 0u));
          for (int d = 0; d < 64; ++d) {
            double expected = 0;
            for (int j = 0; j < n; ++j) expected += counts[j] * cache.value(r, h / 3, j)[d];
            EXPECT_NEAR(run.out[(r * 6 + h) * 64 + d], expected / cache.budgets[r], 2e-6);
          }
        }
      }
    }
  }
}

// A step reads no more than mostBytes() says, and as much where no two draws can meet.
TEST(MostBytes, BoundsWhatIsRead) {
  constexpr int kKeys = 96, kDim = 32;
  int methods = 0;
  for (const std::string& text : methodTexts()) {
    const MethodOptions method = methodOf(text);
    if (!mostBytes(method, {.keys = kKeys, .head_dim = kDim}, 1)) continue;
    ++methods;
    for (const Element element : {Element::kFloat32, Element::kBFloat16}) {
      for (const int group : {1, 4}) {
        SCOPED_TRACE(text + ", " + std::to_string(group) + " heads");
        Cache cache({.lengths = {kKeys, kKeys, kKeys, kKeys, kKeys, kKeys, kKeys},
                     .heads = group,
                     .head_dim = kDim,
                     .element = element,
                     .seed = 9});
        cache.budgets = {1, 2, 3, 24, 60, 96, 1000000};
        const StepShape shape{.keys = kKeys,
                              .group = static_cast<uint64_t>(group),
                              .head_dim = kDim,
                              .element_bytes = static_cast<uint64_t>(bytesOf(element))};
        EXPECT_EQ(mostBytes(method, shape, 0), 0u);
        const auto run = cache.run(method);
        for (int r = 0; r < cache.rows(); ++r) {
          const uint32_t budget = cache.budgets[r];
          const uint64_t read = run.groups[r].key_bytes + run.groups[r].value_bytes;
          const uint64_t most = *mostBytes(method, shape, budget);
          EXPECT_LE(read, most) << "S " << budget;
          const bool all = budget >= kKeys && exactFromAllKeys(method);
          if (all || (budget == 1 && group == 1)) {
            EXPECT_EQ(read, most) << "S " << budget;
          }
          if (all) {
            EXPECT_EQ(read, run.statistics[r].dense_bytes);
          }
        }
      }
    }
  }
  EXPECT_GE(methods, 10);
  for (const char* text : {"dense", "vattention", "quest", "s2anta-flash", "bernoulli"}) {
    EXPECT_FALSE(mostBytes(methodOf(text), {.keys = kKeys, .head_dim = kDim}, 1)) << text;
  }
}

TEST(Philox, KnownAnswers) {
  // From the reference implementation's kat_vectors (Random123), philox4x32-10.
  EXPECT_EQ(philox(0, 0, 0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace allot::kernels
