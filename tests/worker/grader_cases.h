#pragma once
// Tables of completions and what a grader must give for them. For tests.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/tasks/graders.h"

namespace allot {

struct Case {
  std::vector<std::string> references;
  std::string completion;
  double score;
  std::vector<std::string> classes = {};
};

inline void check(const char* name, const std::vector<Case>& cases) {
  const Grader grader = findGrader(name);
  ASSERT_NE(grader, nullptr) << name;
  EXPECT_GE(cases.size(), 30U) << name;
  for (const Case& c : cases) {
    std::string references;
    for (const std::string& reference : c.references) references += "[" + reference + "]";
    EXPECT_NEAR(grader({c.references, c.classes}, c.completion), c.score, 1e-12)
        << name << " of " << references << " in: " << c.completion;
  }
}

inline const std::string kNul("\0", 1);

}  // namespace allot
