#pragma once
// The recall suite: facts hidden in filler text and asked for, the distribution that the recall-7m
// weights were trained on. The C++ twin of experiments/models/recall-7m/recall_suite.py: the same
// seed gives the same bytes.
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
  // The answer rests on a tie, which Python breaks by the order of a set: it differs from process
  // to process there, so nobody can be graded on it.
  bool ambiguous = false;
};

struct RecallSample {
  std::string context;
  std::vector<RecallQuestion> questions;
};

// recall_suite.make: tasks niah, multi, hop, qa and track, at least one question of each.
RecallSample makeRecall(PythonRandom& random, int64_t budget_words);

// recall_suite.make_freq: one question of task freq, the three most common words.
RecallSample makeRecallFreq(PythonRandom& random, int64_t budget_words);

}  // namespace allot
