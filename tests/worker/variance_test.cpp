// Variance at prompts' last positions: the estimator, the closed forms, and the two against each
// other on the real model.
#include "worker/engine/variance.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "tests/results.h"
#include "tests/worker/fidelity_fixture.h"

namespace allot {
namespace {

class VarianceTest : public FidelityTest {
 protected:
  static Fidelity measured(const std::vector<GenerationRow>& rows, const GenerationOptions& options,
                           uint32_t replicates, Decoder* decoder = decoder_) {
    std::vector<int32_t> last;
    for (const auto& prompt : ids_) last.push_back(prompt.back());
    return valueOf(
        measureVariance(decoder, rows, last, tasks_, options, {.replicates = replicates}));
  }
};

// Over all outcomes of three draws of two outputs, the expectation is the variance of one.
TEST(Spread, IsUnbiasedOverAllOutcomes) {
  constexpr double kHeads = 0.3;
  const std::vector<float> outputs[] = {{1, -2, 1000}, {4, 2, 1000}};  // 25 apart, squared
  double expected = 0;
  for (int outcome = 0; outcome < 8; ++outcome) {
    Spread spread;
    double probability = 1;
    for (int draw = 0; draw < 3; ++draw) {
      const int side = outcome >> draw & 1;
      spread.add(outputs[side]);
      probability *= side == 1 ? kHeads : 1 - kHeads;
    }
    expected += probability * spread.variance();
  }
  EXPECT_NEAR(expected, 25 * kHeads * (1 - kHeads), 1e-12);
}

TEST(Spread, EqualOutputsHaveNone) {
  Spread spread;
  const std::vector<float> output = {0.1f, -1e20f, 3e-30f};
  for (int i = 0; i < 7; ++i) spread.add(output);
  EXPECT_EQ(spread.variance(), 0);
}

// What the closed form says of keys with these masses (sums of one) and values of one channel.
std::optional<double> closedForm(const std::string& text, const std::vector<double>& masses,
                                 const std::vector<float>& values, uint32_t budget) {
  std::vector<float> scores;
  for (const double mass : masses) scores.push_back(static_cast<float>(std::log(mass)) + 5);
  return closedFormVariance(
      methodOf(text), scores, [&](size_t key) { return &values[key]; }, 1, budget);
}

TEST(ClosedForm, IsThatOfSmallCasesByHand) {
  // A head that shares its draws has the variance of its group's.
  EXPECT_FALSE(closedForm("santa draws=group", {0.5, 0.5}, {1, 2}, 1));
  // Mean 6.5, mean square 75: 32.75 of one draw.
  const std::vector<double> equal(4, 0.25);
  const std::vector<float> values = {0, 2, 10, 14};
  EXPECT_NEAR(*closedForm("santa", equal, values, 1), 32.75, 1e-5);
  EXPECT_NEAR(*closedForm("santa", equal, values, 2), 32.75 / 2, 1e-5);
  EXPECT_NEAR(*closedForm("s2anta-strat", equal, values, 1), 32.75, 1e-5);
  // Strata {0, 2} and {10, 14}: 1 and 4, over S^2.
  EXPECT_NEAR(*closedForm("s2anta-strat", equal, values, 2), 5.0 / 4, 1e-5);
  // Three strata of a third: 0 and 2 as 3 : 1, 2 and 10 as 1 : 1, 10 and 14 as 1 : 3.
  EXPECT_NEAR(*closedForm("s2anta-strat", equal, values, 3), (0.75 + 16 + 3) / 9, 1e-5);
  // The heavy key fills the first stratum and a half of the second.
  const std::vector<double> heavy = {0.75, 0.125, 0.125};
  EXPECT_NEAR(*closedForm("s2anta-strat", heavy, {4, 0, 8}, 2), 8.0 / 4, 1e-5);
  EXPECT_NEAR(*closedForm("santa", heavy, {4, 0, 8}, 2), 4.0 / 2, 1e-5);
  // Nothing is drawn.
  for (const char* method : {"santa", "s2anta-strat"}) {
    EXPECT_EQ(closedForm(method, equal, values, 0), 0);
    EXPECT_EQ(closedForm(method, equal, values, 4), 0);
    EXPECT_EQ(closedForm(method, equal, values, UINT32_MAX), 0);
  }
  // Unless draws are made however many keys there are.
  EXPECT_NEAR(*closedForm("santa exactAbove=never", equal, values, 8), 32.75 / 8, 1e-5);
  for (const char* other : {"s2anta-sys", "top-k", "s2anta-q4", "bernoulli values=santa"}) {
    EXPECT_EQ(closedForm(other, equal, values, 2), std::nullopt) << other;
  }
}

// A thousand strata whose bounds are no binary fractions: none is lost, and none is empty.
TEST(ClosedForm, StratifiedIsNeverAboveIndependentAndLosesNoStratum) {
  std::vector<double> masses;
  std::vector<float> values;
  double total = 0;
  for (int j = 0; j < 3001; ++j) {
    masses.push_back(1 + j % 7);
    values.push_back(static_cast<float>(j));
    total += masses.back();
  }
  for (double& mass : masses) mass /= total;
  for (const uint32_t draws : {1u, 3u, 10u, 100u, 999u, 3000u}) {
    const double independent = *closedForm("santa", masses, values, draws);
    const double stratified = *closedForm("s2anta-strat", masses, values, draws);
    EXPECT_LE(stratified, independent * (1 + 1e-9)) << draws;
    // Values in their order are a line, of which each stratum has an S-th.
    if (draws > 100) continue;
    EXPECT_NEAR(stratified * std::pow(draws, 3) / (3001.0 * 3001 / 12), 1, 0.01) << draws;
  }
}

v1::FidelityCell totalOf(const Fidelity& fidelity) {
  v1::FidelityCell sum;
  for (const auto& cell : fidelity.cells) {
    sum.set_states(sum.states() + cell.states());
    sum.set_positions(sum.positions() + cell.positions());
    sum.set_variance(sum.variance() + cell.variance());
    sum.set_closed_form(sum.closed_form() + cell.closed_form());
    sum.set_closed_form_positions(sum.closed_form_positions() + cell.closed_form_positions());
    sum.set_squared_error(sum.squared_error() + cell.squared_error());
    sum.set_unique_rows(sum.unique_rows() + cell.unique_rows());
    sum.set_dense_rows(sum.dense_rows() + cell.dense_rows());
  }
  return sum;
}

TEST_F(VarianceTest, WhatDrawsNothingHasNone) {
  const size_t free = decoder_->pool().freePages();
  const std::vector<std::pair<const char*, uint32_t>> exact = {
      {"top-k", 20}, {"quest", 40}, {"santa", 0}, {"santa", 100000}, {"s2anta-sys", 100000}};
  for (const auto& [method, budget] : exact) {
    const auto sum = totalOf(measured(rows(budget), options(method, 3), 3));
    EXPECT_EQ(sum.positions(), 8u * 8 * 8) << method;
    EXPECT_EQ(sum.states(), 3 * sum.positions()) << method;
    EXPECT_EQ(sum.variance(), 0) << method << " " << budget;
    EXPECT_EQ(sum.closed_form(), 0) << method << " " << budget;
    EXPECT_EQ(sum.squared_error() > 0, budget < 100000) << method << " " << budget;
  }
  EXPECT_EQ(decoder_->pool().freePages(), free);
}

// The state is that of the last prompt token: its query, with all of the prompt's keys. The
// prefill's own, which sums in another order, says what independent draws should have.
TEST_F(VarianceTest, TheStateIsThatOfThePromptsLastPosition) {
  const auto sum = measured(rows(4), options("santa", 3), 2);
  std::map<uint32_t, double> by_layer, expected;
  uint64_t keys = 0;
  for (const auto& cell : sum.cells) by_layer[cell.layer()] += cell.closed_form();
  const kernels::MethodOptions santa = methodOf("santa");
  for (const auto& ids : ids_) {
    PromptReading reading;
    reading.observer = [&](const kernels::PagedKv& kv, const kernels::PrefillInputs& in,
                           int64_t layer) -> Status {
      const int length = static_cast<int>(ids.size());
      if (in.first + in.count < length) return {};
      for (int head = 0; head < in.heads; ++head) {
        const auto at = [&](size_t key) {
          const auto position = static_cast<int>(key);
          return kv.offset(in.page_table[position / kv.page_size], head * kv.kv_heads / in.heads,
                           position % kv.page_size);
        };
        const float* query =
            in.queries + (static_cast<int64_t>(in.count - 1) * in.heads + head) * kv.head_dim;
        std::vector<float> scores;
        for (size_t key = 0; key < ids.size(); ++key) {
          const float* k = static_cast<const float*>(kv.keys) + at(key);
          double score = 0;
          for (int i = 0; i < kv.head_dim; ++i) score += static_cast<double>(query[i]) * k[i];
          scores.push_back(static_cast<float>(in.scale * score));
        }
        expected[static_cast<uint32_t>(layer)] += *closedFormVariance(
            santa, scores,
            [&](size_t key) { return static_cast<const float*>(kv.values) + at(key); },
            static_cast<size_t>(kv.head_dim), 4);
      }
      return {};
    };
    auto prompt = valueOf(decoder_->prefill(ids, reading));
    decoder_->release(&prompt);
    keys += ids.size();
  }
  ASSERT_EQ(by_layer.size(), 8u);
  for (const auto& [layer, variance] : by_layer) {
    EXPECT_NEAR(variance / expected[layer], 1, 1e-3) << layer;
  }
  EXPECT_EQ(totalOf(sum).dense_rows(), keys * 8 * 8 * 2);
}

// Of keys and values in bfloat16 or e4m3 the closed form is that of the stored numbers, which are
// near. The scales of e4m3 numbers do not matter.
TEST_F(VarianceTest, OfANarrowCacheIsThatOfItsNumbers) {
  const GenerationOptions at = options("santa", 3);
  const auto full = totalOf(measured(rows(4), at, 16));
  const std::vector<float> keys(16, 0.0625f), values(16, 0.125f);
  const KvPoolOptions pools[] = {
      {.kv_bytes = size_t{64} << 20, .element = kernels::Element::kBFloat16},
      {.kv_bytes = size_t{64} << 20, .element = kernels::Element::kE4M3},
      {.kv_bytes = size_t{64} << 20,
       .element = kernels::Element::kE4M3,
       .key_scales = keys,
       .value_scales = values}};
  for (const KvPoolOptions& pool : pools) {
    auto decoder = valueOf(Decoder::load(kRecall7m, pool));
    std::vector<Prompt> prompts;
    std::vector<GenerationRow> halves = rows(4);
    for (const auto& ids : ids_) prompts.push_back(*decoder->prefill(ids));
    for (size_t i = 0; i < prompts.size(); ++i) halves[i].prompt = &prompts[i];
    const auto half = totalOf(measured(halves, at, 16, decoder.get()));
    const bool exact = pool.element == kernels::Element::kBFloat16;
    EXPECT_NEAR(half.closed_form() / full.closed_form(), 1, exact ? 0.01 : 0.05);
    EXPECT_NEAR(half.variance() / half.closed_form(), 1, 0.1);
    for (Prompt& prompt : prompts) decoder->release(&prompt);
  }
}

// Heads of 2 and of 4 draws, and the same the other way round, are all heads of 2 and all of 4.
TEST_F(VarianceTest, EachHeadHasTheClosedFormOfItsOwnDraws) {
  const auto closed = [](const SampleSchedule& schedule) {
    std::vector<GenerationRow> by_heads = rows(0);
    for (GenerationRow& row : by_heads) row.schedule = schedule;
    return totalOf(measured(by_heads, options("santa", 3), 2)).closed_form();
  };
  SampleSchedule evens(64), odds(64);
  for (size_t head = 0; head < 64; ++head) {
    evens[head] = head % 2 == 0 ? 2 : 4;
    odds[head] = 6 - evens[head];
  }
  const double two = closed(SampleSchedule(8, 2)), four = closed(SampleSchedule(8, 4));
  EXPECT_NEAR(two / four, 2, 1e-12);
  EXPECT_NEAR((closed(evens) + closed(odds)) / (two + four), 1, 1e-12);
  EXPECT_LT(closed(evens), two);
  EXPECT_GT(closed(evens), four);
}

// Of variance by replicates to the closed form, averaged over layers, from many seeds.
Estimate ratioOf(const std::vector<Fidelity>& seeds, double factor = 1) {
  std::vector<double> ratios;
  for (const Fidelity& seed : seeds) {
    std::map<uint32_t, std::pair<double, double>> layers;
    for (const auto& cell : seed.cells) {
      EXPECT_EQ(cell.closed_form_positions(), cell.positions());
      layers[cell.layer()].first += cell.variance();
      layers[cell.layer()].second += cell.closed_form();
    }
    ratios.push_back(0);
    for (const auto& [layer, sums] : layers) ratios.back() += factor * sums.first / sums.second / 8;
  }
  return estimateOf(ratios);
}

TEST_F(VarianceTest, ReplicatesFollowTheClosedForms) {
  constexpr uint32_t kReplicates = 4;
  constexpr uint64_t kSeeds = 16;
  // Of 15 degrees of freedom: a false alarm in 6000 runs of a two-sided test, in 1500 of all four.
  constexpr double kBound = 5;
  for (const char* method : {"santa", "s2anta-strat"}) {
    for (const uint32_t budget : {2u, 16u}) {
      std::vector<Fidelity> seeds;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        seeds.push_back(measured(rows(budget), options(method, seed), kReplicates));
      }
      const Estimate ratio = ratioOf(seeds);
      std::printf("%-12s S = %2u: variance over the closed form %.4f +- %.4f\n", method, budget,
                  ratio.mean, ratio.error);
      EXPECT_LT(std::abs(ratio.mean - 1), kBound * ratio.error) << method << " " << budget;
      // The test of the test: R in place of R - 1 must be refuted.
      const Estimate planted = ratioOf(seeds, (kReplicates - 1.0) / kReplicates);
      EXPECT_GT(1 - planted.mean, kBound * planted.error) << method << " " << budget;
    }
  }
}

TEST_F(VarianceTest, ReplicatesAreIndependentAndSystematicOnesReadMoreRows) {
  const auto one = [](const char* method, uint64_t seed) {
    return measured(rows(16), options(method, seed), 8);
  };
  EXPECT_EQ(totalOf(one("s2anta-sys", 1)).variance(), totalOf(one("s2anta-sys", 1)).variance());
  EXPECT_NE(totalOf(one("s2anta-sys", 1)).variance(), totalOf(one("s2anta-sys", 2)).variance());
  const auto santa = totalOf(one("santa", 1)), sys = totalOf(one("s2anta-sys", 1));
  EXPECT_GT(sys.unique_rows(), santa.unique_rows());
  EXPECT_LE(sys.unique_rows(), 16 * sys.states());
  EXPECT_LT(sys.variance(), santa.variance());
  EXPECT_EQ(sys.closed_form_positions(), 0u);
  // An unbiased method's squared error is its variance. Everything follows from the seed, so that
  // there is no false alarm; they are 4096 states.
  const double error = santa.squared_error() / static_cast<double>(santa.states());
  const double variance = santa.variance() / static_cast<double>(santa.positions());
  EXPECT_NEAR(error / variance, 1, 0.05);
}

}  // namespace
}  // namespace allot
