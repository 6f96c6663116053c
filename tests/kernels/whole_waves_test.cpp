// The size of a dense prompt's chunks (kernels/cuda/whole_waves.h). Without a GPU.
#include "kernels/cuda/whole_waves.h"

#include <gtest/gtest.h>

namespace allot::kernels::cuda {
namespace {

// The share of whole waves that the items of a chunk fill.
double filled(int positions, int heads, int multiprocessors) {
  const int items = positions / 128 * heads;
  const int waves = (items + multiprocessors - 1) / multiprocessors;
  return static_cast<double>(items) / (static_cast<double>(waves) * multiprocessors);
}

TEST(WholeWaves, FillMultiprocessorsBest) {
  // An H100's multiprocessors: 28 heads fill 784 of 792 places with 3,584 positions, 896 of 924
  // with 4,096.
  EXPECT_EQ(wholeWaves(28, 132, 128, 4096), 3584);
  EXPECT_EQ(wholeWaves(32, 132, 128, 4096), 4096);
  EXPECT_EQ(wholeWaves(64, 132, 128, 4096), 4096);
  for (const int multiprocessors : {78, 114, 132, 144}) {
    for (int heads = 1; heads <= 128; ++heads) {
      const int made = wholeWaves(heads, multiprocessors, 128, 4096);
      EXPECT_EQ(made % 128, 0);
      EXPECT_GE(made, 3072);
      EXPECT_LE(made, 4096);
      for (int other = 3072; other <= 4096; other += 128) {
        const double gain =
            filled(other, heads, multiprocessors) - filled(made, heads, multiprocessors);
        EXPECT_LE(gain, other > made ? -1e-9 : 1e-9) << heads << " heads, " << other;
      }
    }
  }
}

}  // namespace
}  // namespace allot::kernels::cuda
