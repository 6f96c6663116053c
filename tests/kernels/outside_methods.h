#pragma once
// The methods that example_method_test adds: the example's, and one that breaks what
// kernels/cpu/methods.h asks of a Selection in the way that the test chooses.
#include "kernels/example/uniform_method.h"
#undef ALLOT_MORE_METHODS
#define ALLOT_MORE_METHODS(X)                                                                     \
  X(kUniform, "uniform", kDecode, kExact, kOther, kS, kScores, kEstimated, kUnbiased, kNone,      \
    kNone, 0, selectUniform,                                                                      \
    "a key in each of S equal stretches, weighed by its attention; unbiased")                     \
  X(kBroken, "broken", kDecode, kExact, kOther, kS, kScores, kEstimated, kUnbiased, kNone, kNone, \
    0, selectBroken, "uniform, with a fault of the test's choice")
