#pragma once
// Suite: what one family of tasks must supply; task.cpp builds the datasets and picks the suite.
//
// To add a suite: write one file that returns its Suite, and name it in suites() in task.cpp. Task
// names are unique over all suites. Every answer is written as " ANSWER\n". Functions without
// state: any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allot {

// One question before it is cut to tokens.
struct Draft {
  std::string prompt;
  std::string answer;
};

struct Suite {
  std::string name;
  std::vector<std::string> tasks;
  // About how many words (in `draft`'s sense) make one token of `task`'s prompts, in hundredths.
  int64_t (*words_per_100_tokens)(std::string_view task);
  // The question that (task, seed, words) stands for, about `words` long (the suite's minimum if
  // that is more); none if the one that came up has no clear answer. Pure.
  std::optional<Draft> (*draft)(std::string_view task, uint64_t seed, int64_t words);
  // 0..1.
  double (*grade)(const std::string& answer, const std::string& completion);
};

}  // namespace allot
