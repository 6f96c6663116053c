#pragma once
// The small model of this repository, and methods by their texts. For tests.
#include <gtest/gtest.h>

#include <string>

#include "allot/kernels/method.h"

namespace allot {

inline const std::string kRecall7m =
    std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";

inline kernels::MethodOptions methodOf(const std::string& text) {
  kernels::MethodOptions method;
  const auto wrong = kernels::parseMethod(text, &method);
  EXPECT_FALSE(wrong) << text << ": " << *wrong;
  return method;
}

}  // namespace allot
