#pragma once
// A method of one's own. A build with -DALLOT_METHODS_FILE='"kernels/example/uniform_method.h"' has
// it like any other; a method of this library has its entry in allot/kernels/method_names.h itself,
// which says what the columns are.
#define ALLOT_MORE_METHODS(X)                                                                \
  X(kUniform, "uniform", kDecode, kExact, kOther, kS, kScores, kEstimated, kUnbiased, kNone, \
    kNone, 0, selectUniform,                                                                 \
    "a key in each of S equal stretches, weighed by its attention; unbiased")
