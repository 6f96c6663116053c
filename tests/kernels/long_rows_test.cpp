// Rows of up to 2^20 keys, of which one outweighs any other by far: what the rest weighs is drawn
// as often as it weighs, whatever the dominant key's place and the budget.
#include <cmath>

#include "tests/kernels/fixture.h"

namespace allot::kernels {
namespace {

// Random numbers in -0.5 .. 0.5 without a generator's state.
float noise(int key) {
  const auto word = static_cast<uint32_t>(key) * 2654435761u;
  return static_cast<float>(word >> 8) * 0x1p-24f - 0.5f;
}

class LongRows : public testing::TestWithParam<int> {};

TEST_P(LongRows, NothingOfATailIsLost) {
  const int n = GetParam();
  for (const float gap : {12.0f, 16.0f}) {
    for (const int dominant : {0, n / 2, n - 1}) {
      double tail = 0;
      std::vector<float> scores(n);
      for (int j = 0; j < n; ++j) {
        scores[j] = j == dominant ? 0.0f : noise(j) - gap;
        if (j != dominant) tail += std::exp(static_cast<double>(scores[j]));
      }
      const double share = tail / (1 + tail);
      ScoredHead scored(scores);
      scored.options = methodOf("s2anta-sys");
      for (const int budget : {n / 2, n - 1}) {
        SCOPED_TRACE("gap " + std::to_string(gap) + ", key " + std::to_string(dominant) + ", S " +
                     std::to_string(budget));
        scored.head.budget = static_cast<uint32_t>(budget);
        scored.head.sequence = 1;
        const std::vector<uint32_t> counts = countsOf(select(selectS2antaSys, scored), n);
        const double drawn = 1 - static_cast<double>(counts[dominant]) / budget;
        // A systematic count is a whole number beside its mean.
        EXPECT_NEAR(drawn, share, 1e-4 * share + 1.0 / budget);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, LongRows, testing::Values(1000, 300000, 1 << 20));

}  // namespace
}  // namespace allot::kernels
