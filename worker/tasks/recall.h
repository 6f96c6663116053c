#pragma once
// The recall suite: facts hidden in filler text, and questions about them. The recall-7m weights
// were trained on its distribution. experiments/models/recall-7m/recall_suite.py is its twin in
// Python: equal seeds give equal bytes.
//
// Functions without state: any thread (a PythonRandom belongs to its caller).
#include <cstdint>
#include <string>
#include <vector>

#include "worker/tasks/python_random.h"

namespace allot {

struct RecallQuestion {
  std::string text;
  std::string answer;
  std::string task;
  // The answer depends on a tie, which Python breaks by the order of a set. That order differs
  // between processes, so that the question cannot be graded.
  bool ambiguous = false;
};

struct RecallSample {
  std::string context;
  std::vector<RecallQuestion> questions;
};

// Makes a sample as recall_suite.make: tasks niah, multi, hop, qa and track, at least one question
// of each.
RecallSample makeRecall(PythonRandom& random, int64_t budget_words);

// Makes a sample as recall_suite.make_freq: one question of task freq, the three most common words.
RecallSample makeRecallFreq(PythonRandom& random, int64_t budget_words);

}  // namespace allot
