#pragma once
// The list of suites. Each has its own file. Functions without state: any thread.
#include "worker/tasks/suite.h"

// One line a suite: the function that returns it.
#define ALLOT_SUITES(X) \
  X(recallSuite)        \
  X(rulerSuite)         \
  X(gsm8kSuite)         \
  X(mmluSuite)          \
  X(longbenchSuite)     \
  X(longbenchV1Suite)   \
  X(infinitebenchSuite) \
  X(humanevalSuite)     \
  X(jsonlSuite)

namespace allot {

#define ALLOT_DECLARE_SUITE(function) Suite function();
ALLOT_SUITES(ALLOT_DECLARE_SUITE)
#undef ALLOT_DECLARE_SUITE

}  // namespace allot
