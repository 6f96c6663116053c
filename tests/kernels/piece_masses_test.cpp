// The arithmetic that GPUs and the CPU share, or should agree in: pieces of a group's mixture and
// thresholds without 128-bit divisions, beside 128-bit ones.
#include "kernels/piece_masses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/cpu/draws.h"
#include "kernels/draw_thresholds.h"

namespace allot::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

// Masses and prefix sums of every size that occurs, and the largest that are allowed.
TEST(PieceMasses, IntegersAreTheWideOnes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t mass = i % 7 == 0 ? uint64_t{1} << 31 : random() >> (34 + random() % 30);
    const uint64_t total = i % 11 == 0 ? 0xffffffffu : 1 + (random() >> (39 + random() % 25));
    const uint64_t prefix = i % 5 == 0 ? total : random() % (total + 1);
    const auto integers = static_cast<uint64_t>(static_cast<Wide>(mass << 31) * prefix / total);
    ASSERT_EQ(integersUpTo(mass, prefix, total, 1.0 / static_cast<double>(total)), integers);
    // The integers before a place and those behind it are told apart by the product.
    const uint64_t end = mass << 31;
    for (const uint64_t place : {integers - 1, integers, integers + 1, random() % (end + 1)}) {
      if (place >= end) continue;
      ASSERT_EQ(mass * prefix >= productFor(place, total), integers > place)
          << mass << " " << prefix << " " << total << " " << place;
    }
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
      const DrawThresholds thresholds(by, total, samples, offset);
      const auto words = [&](uint32_t block) { return head.random(block); };
      for (uint32_t m = 0; m < samples; ++m) one_by_one[m] = thresholds.at(by, m, words);
      if (by == ChosenBy::kIndependent) std::sort(one_by_one.begin(), one_by_one.end());
      ASSERT_EQ(one_by_one, cpu) << "total " << total << ", " << samples << " draws";
    }
  }
}

}  // namespace
}  // namespace allot::kernels
