#include "worker/model/token_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace allot {
namespace {

// Softmax 0.5, 0.25, 0.125, 0.0625, 0.0625 at temperature 1, out of order.
const std::vector<float> kLogits = {
    static_cast<float>(std::log(0.125)), static_cast<float>(std::log(0.5)),
    static_cast<float>(std::log(0.0625)), static_cast<float>(std::log(0.25)),
    static_cast<float>(std::log(0.0625))};
constexpr uint32_t kDraws = 20000;

std::map<int32_t, double> shares(const TokenChoice& choice) {
  std::map<int32_t, double> share;
  for (uint32_t step = 0; step < kDraws; ++step) {
    share[chooseToken(kLogits, choice, 5, step % 7, step)] += 1.0 / kDraws;
  }
  return share;
}

// Within five standard errors each: of the 14 shares below, one in 120,000 changes of the seed.
void expectShares(const TokenChoice& choice, const std::map<int32_t, double>& expected) {
  const auto drawn = shares(choice);
  EXPECT_EQ(drawn.size(), expected.size());
  for (const auto& [token, p] : expected) {
    EXPECT_NEAR(drawn.count(token) != 0 ? drawn.at(token) : 0, p,
                5 * std::sqrt(p * (1 - p) / kDraws) + 1e-6)
        << token;
  }
}

TEST(TokenChoice, ZeroIsGreedyAndTheLowestIdBreaksTies) {
  EXPECT_EQ(chooseToken(kLogits, {}, 1, 2, 3), 1);
  EXPECT_EQ(chooseToken(std::vector<float>{1, 3, 2, 3}, {.top_k = 1, .top_p = 0.1}, 1, 2, 3), 1);
  // So it is where one token is all that is left.
  EXPECT_EQ(chooseToken(std::vector<float>{1, 3, 2, 3}, {.temperature = 1, .top_k = 1}, 1, 2, 3),
            1);
}

TEST(TokenChoice, DrawsTheDistributionThatIsLeft) {
  expectShares({.temperature = 1}, {{1, .5}, {3, .25}, {0, .125}, {2, .0625}, {4, .0625}});
  expectShares({.temperature = 1, .top_k = 2}, {{1, 2 / 3.0}, {3, 1 / 3.0}});
  // The smallest set of at least this mass: 0.5 + 0.25 is it to the bit, and not a hair more.
  expectShares({.temperature = 1, .top_p = 0.7}, {{1, 2 / 3.0}, {3, 1 / 3.0}});
  // Of the three that top-k leaves (7/8), 0.9 is more than the first two (6/7).
  expectShares({.temperature = 1, .top_k = 3, .top_p = 0.9},
               {{1, 4 / 7.0}, {3, 2 / 7.0}, {0, 1 / 7.0}});
  // Temperature 1/2 squares the odds before top-p looks at them: 64, 16, 4 of 86.
  expectShares({.temperature = 0.5, .top_p = 0.9}, {{1, 64 / 80.0}, {3, 16 / 80.0}});
}

// Hugging Face's: a tensor of float32 over or times a Python number, which is rounded to float32.
TEST(TokenChoice, APenaltyIsForWhatWasSeenOnce) {
  const std::vector<float> logits = {3, -2, 0, 5, -1e-30F, 7.7F, -0.0F};
  std::vector<float> penalised = logits;
  penaliseSeen(penalised, std::vector<int32_t>{5, 1, 0, 1, 5, 5, 2, 6}, 1.1);
  EXPECT_EQ(penalised, (std::vector<float>{3 / 1.1F, -2 * 1.1F, 0, 5, -1e-30F, 7.7F / 1.1F, 0}));
  // Below 1 it draws tokens that were seen.
  penalised = logits;
  penaliseSeen(penalised, std::vector<int32_t>{4, 3}, 0.25);
  EXPECT_EQ(penalised, (std::vector<float>{3, -2, 0, 20, -2.5e-31F, 7.7F, 0}));
  penalised = logits;
  penaliseSeen(penalised, {}, 1.1);
  EXPECT_EQ(penalised, logits);
}

TEST(TokenChoice, AnotherSeedSequenceOrStepDrawsAnother) {
  const TokenChoice choice{.temperature = 50};
  std::vector<float> logits(1 << 16);
  const int32_t token = chooseToken(logits, choice, 1, 2, 3);
  EXPECT_EQ(chooseToken(logits, choice, 1, 2, 3), token);
  EXPECT_NE(chooseToken(logits, choice, 2, 2, 3), token);
  EXPECT_NE(chooseToken(logits, choice, 1, 3, 3), token);
  EXPECT_NE(chooseToken(logits, choice, 1, 2, 4), token);
}

}  // namespace
}  // namespace allot
