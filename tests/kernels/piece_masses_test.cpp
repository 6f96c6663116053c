// The arithmetic that GPUs and the CPU share, or should agree in: integers of a group's mixture,
// and thresholds without 128-bit divisions, beside 128-bit ones.
#include "kernels/piece_masses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/cpu/draws.h"
#include "kernels/draw_thresholds.h"

namespace allot::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

TEST(PieceMasses, RoundAsTheyAreDefined) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t weight = random() >> (26 + random() % 38);  // of a piece, up to 2^38
    const auto gap = static_cast<int>(random() % 52);
    const Wide halves = static_cast<Wide>(weight) << 10;  // 2^-10 times the head's unit at gap 0
    const auto rounded = static_cast<uint64_t>((halves + (Wide{1} << gap)) >> gap >> 1);
    ASSERT_EQ(inHeadUnits(weight, gap), gap < 48 ? rounded : 0) << weight << " " << gap;
    const auto factor = static_cast<uint32_t>(random() >> (32 + random() % 32));
    const auto divided = static_cast<uint32_t>(std::ceil(std::ldexp(factor, -gap)));
    ASSERT_EQ(pieceFactor(factor, gap), gap < 48 ? divided : 0u) << factor << " " << gap;
    // A weight of 2^-24 on a GPU, in the CPU's unit, has the integers that the GPU gives it.
    if (weight < uint64_t{1} << 31) {
      const int bits = 16 - gap;
      const uint64_t gpu =
          bits >= 0 ? weight << bits : (weight + (uint64_t{1} << (-bits - 1))) >> -bits;
      ASSERT_EQ(inHeadUnits(weight << 7, gap), gap < 48 ? gpu : 0u);
    }
  }
  EXPECT_EQ(headFactor(1, uint64_t{1} << 38), 1u << 31);
  EXPECT_EQ(headFactor(0x1p-21, uint64_t{1} << 61), 1u);
}

TEST(PieceMasses, QuotientsAreExact) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 400000; ++i) {
    const uint64_t divisor = i < 4096 ? 1 + i : 1 + (random() >> (2 + random() % 62));
    const uint64_t reciprocal = reciprocalOf(divisor);
    const auto check = [&](uint64_t dividend) {
      ASSERT_EQ(quotient(dividend, divisor, reciprocal), dividend / divisor)
          << dividend << " / " << divisor;
    };
    const uint64_t dividend = random() >> (1 + random() % 63);
    const uint64_t most = ~uint64_t{0} >> 1, multiple = dividend / divisor * divisor;
    for (const uint64_t x : {dividend, multiple, multiple - (multiple > 0), most}) check(x);
    check(most / divisor * divisor);
    check(most / divisor * divisor - 1);
  }
}

TEST(PieceMasses, ThresholdsAreTheCpus) {
  std::mt19937_64 random(2);
  const ChosenBy kinds[] = {ChosenBy::kSystematic, ChosenBy::kStratified, ChosenBy::kIndependent};
  for (int i = 0; i < 600; ++i) {
    Head head;
    head.seed = random();
    head.sequence = static_cast<uint32_t>(random());
    const uint64_t total = i % 9 == 0 ? (uint64_t{1} << 62) - 1 : 1 + (random() >> (2 + i % 60));
    const auto samples = static_cast<uint32_t>(1 + (random() % (i % 50 == 0 ? 1 << 20 : 3000)));
    const uint32_t offset = offsetOf(head.random(0)[0]);
    for (const ChosenBy by : kinds) {
      std::vector<uint64_t> cpu(samples), one_by_one(samples);
      if (by == ChosenBy::kSystematic) systematicThresholds(total, samples, offset, cpu.data());
      if (by == ChosenBy::kStratified) stratifiedThresholds(head, total, samples, cpu.data());
      if (by == ChosenBy::kIndependent) independentThresholds(head, total, samples, cpu.data());
      const DrawThresholds thresholds(by, total, samples, offset, reciprocalOf(samples));
      const auto words = [&](uint32_t block) { return head.random(block); };
      for (uint32_t m = 0; m < samples; ++m) one_by_one[m] = thresholds.at(by, m, words);
      if (by == ChosenBy::kIndependent) std::sort(one_by_one.begin(), one_by_one.end());
      ASSERT_EQ(one_by_one, cpu) << "total " << total << ", " << samples << " draws";
    }
  }
}

}  // namespace
}  // namespace allot::kernels
