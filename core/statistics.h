#pragma once
// The few statistics that allot reports. Pure functions, any thread.
#include <cstddef>

namespace allot {

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson score interval, 95 %, for a mean of n scores in [0, 1] whose sum is `sum`. For scores
// other than 0 and 1 it is conservative: their variance is at most p(1-p). n = 0 gives [0, 1].
Interval wilson95(double sum, size_t n);

}  // namespace allot
