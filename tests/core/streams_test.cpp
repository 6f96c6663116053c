// Who draws which random numbers: core/ beside attention, and repetitions beside each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "allot/v1/experiment.pb.h"
#include "core/learning/questions.h"
#include "core/learning/schedule.h"
#include "core/random_stream.h"

namespace allot {
namespace {

constexpr uint64_t kSeed = 7;
constexpr RunStreams kRun = {kSeed};
constexpr Purpose kPurposes[] = {Purpose::kSchedule, Purpose::kQuestions, Purpose::kBootstrap,
                                 Purpose::kRepetition};

// Returns the words of attention of the first questions, steps, layers and heads.
std::vector<uint32_t> wordsOfAttention() {
  std::vector<uint32_t> all;
  for (uint32_t sequence = 0; sequence < 8; ++sequence) {
    for (uint32_t step = 0; step < 8; ++step) {
      for (uint32_t layer = 0; layer < 8; ++layer) {
        for (uint32_t head = 0; head < 8; ++head) {
          const auto words = philox(kSeed, sequence, step, attentionStream(layer, head), 0);
          all.insert(all.end(), words.begin(), words.end());
        }
      }
    }
  }
  return all;
}

TEST(RunStreams, SchedulesShareNoWordWithAttention) {
  const std::vector<uint32_t> attention = wordsOfAttention();
  EXPECT_EQ(attention.size(), 16384u);
  const auto shared = [&](const std::set<uint32_t>& words) {
    return std::count_if(attention.begin(), attention.end(),
                         [&](uint32_t word) { return words.contains(word); });
  };
  for (const Purpose purpose : {Purpose::kSchedule, Purpose::kQuestions, Purpose::kBootstrap}) {
    std::set<uint32_t> words;
    RandomStream stream(kRun, purpose, attentionStream(3, 5));
    for (int call = 0; call < 8; ++call) {
      for (const uint32_t word : stream.words()) words.insert(word);
    }
    EXPECT_EQ(shared(words), 0);  // else by chance, for one seed in 2700
    words.insert(attention[4711]);
    EXPECT_GT(shared(words), 0);
  }
}

// What the compiler proves rests on this function.
TEST(RunStreams, DomainsMeetWhereEveryWordDoes) {
  const PhiloxDomain attention = {.sequence = {10, 20}, .step = {1, 9}, .stream = {0, 99}};
  EXPECT_TRUE(overlap(attention, attention));
  EXPECT_TRUE(overlap(attention, {.sequence = {20, 30}, .step = {9, 9}, .stream = {99, 100}}));
  EXPECT_FALSE(overlap(attention, {.sequence = {21, 30}}));
  EXPECT_FALSE(overlap(attention, {.step = {10, 12}}));
  EXPECT_FALSE(overlap(attention, {.stream = {100, 100}}));
  PhiloxDomain blocks = attention, others = attention;
  blocks.block = {0, 3};
  others.block = {4, 4};
  EXPECT_FALSE(overlap(blocks, others));
  EXPECT_TRUE(anyOverlap(std::array{blocks, others, attention}));
  EXPECT_FALSE(anyOverlap(std::array{blocks, others}));
}

// The list is true: whoever draws has counters in its domain. (Kernels' own tests hold attention's
// to attentionStream.)
TEST(RunStreams, EveryoneDrawsInTheDomainOfTheList) {
  for (const Purpose purpose : kPurposes) {
    const auto domain = std::count_if(kPhiloxDomains.begin(), kPhiloxDomains.end(),
                                      [&](const PhiloxDomain& listed) {
                                        return listed.stream.first == purposeStream(purpose) &&
                                               listed.stream.last == purposeStream(purpose);
                                      });
    EXPECT_EQ(domain, 1);
    RandomStream stream(kRun, purpose, 0x123456789abcdef0u);
    for (uint32_t block = 0; block < 3; ++block) {
      EXPECT_EQ(stream.words(),
                philox(kSeed, 0x9abcdef0u, 0x12345678u, purposeStream(purpose), block));
    }
  }
  const auto within = [](uint32_t word, WordRange range) {
    return range.first <= word && word <= range.last;
  };
  for (const uint64_t ticket : {uint64_t{0}, uint64_t{1} << 27, uint64_t{1} << 40}) {
    EXPECT_TRUE(within(rolloutSequence(ticket, 16, 15), kRolloutSequences));
  }
  std::set<uint32_t> sequences;
  for (const uint32_t question : {0u, 1u, 31u, 32u, 999'999u}) {
    EXPECT_EQ(evaluationSequence(question, 0), kEvaluationBit | question);
    for (const uint32_t repeat : {0u, 1u, 2u, 99u}) {
      EXPECT_TRUE(within(evaluationSequence(question, repeat), kEvaluationSequences));
      EXPECT_TRUE(sequences.insert(evaluationSequence(question, repeat)).second);
    }
  }
  EXPECT_TRUE(within(attentionStream(0, 0), kAttentionStreams));
  EXPECT_TRUE(within(attentionStream(kStreamLayers - 1, 65535), kAttentionStreams));
  EXPECT_FALSE(within(attentionStream(kStreamLayers, 0), kAttentionStreams));
}

RunStreams repetition(uint64_t seed, uint64_t number) {
  v1::Spec spec;
  spec.set_seed(seed);
  spec.set_repetition(number);
  return runStreams(spec);
}

TEST(RunStreams, EveryRepetitionHasAKeyOfItsOwn) {
  EXPECT_EQ(repetition(kSeed, 0).key, kSeed);
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (uint64_t number = 0; number < 40; ++number) {
      const RunStreams run = repetition(seed, number);
      EXPECT_TRUE(keys.insert(run.key).second) << seed << " " << number;
    }
  }
  EXPECT_NE(repetition(kSeed, 1).key, repetition(kSeed, uint64_t{1} << 32).key);
  EXPECT_EQ(repetition(kSeed, 12).key, repetition(kSeed, 12).key);
}

// What a fork draws says nothing about what its parent drew. Correlations over tickets of the draws
// of layer 0, and of attention's first words: of 20,000 each, normal within 5: a false alarm in
// 400,000 changes of the seed. The twin is the same run.
TEST(RunStreams, RepetitionsAreIndependent) {
  constexpr int kTickets = 20'000;
  const auto z = [&](const RunStreams& a, const RunStreams& b, auto draw) {
    double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0;
    for (uint32_t ticket = 0; ticket < kTickets; ++ticket) {
      const double x = draw(a, ticket), y = draw(b, ticket);
      sx += x, sy += y, xx += x * x, yy += y * y, xy += x * y;
    }
    const double n = kTickets;
    const double scale = (xx / n - sx / n * sx / n) * (yy / n - sy / n * sy / n);
    return (xy / n - sx / n * sy / n) / std::sqrt(scale) * std::sqrt(n);
  };
  const auto schedules = [](const RunStreams& run, uint32_t ticket) -> double {
    static const std::vector<double> even(4, 0.25);
    return drawSchedule(even, 8, 0, run, ticket)[0];
  };
  const auto attention = [](const RunStreams& run, uint32_t ticket) -> double {
    return philox(run.key, rolloutSequence(ticket, 16, 3), 1, 0, 0)[0];
  };
  const RunStreams parent = repetition(kSeed, 0), fork = repetition(kSeed, 4'711);
  EXPECT_GT(z(parent, parent, schedules), 100);
  EXPECT_LT(std::fabs(z(parent, fork, schedules)), 5);
  EXPECT_LT(std::fabs(z(fork, repetition(kSeed, 4'712), schedules)), 5);
  EXPECT_GT(z(parent, parent, attention), 100);
  EXPECT_LT(std::fabs(z(parent, fork, attention)), 5);
  EXPECT_NE(episodeQuestions(parent, 0, 16, 256), episodeQuestions(fork, 0, 16, 256));
}

}  // namespace
}  // namespace allot
