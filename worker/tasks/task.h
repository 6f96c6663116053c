#pragma once
// Tasks: questions with answers, and how an answer is graded.
//
// A suite makes two datasets from a seed: `train` (rewards) and `heldOut` (evaluation), which share
// no context. Datasets are immutable once made; any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "model/tokenizer.h"

namespace allot {

struct Question {
  std::string task;                 // "niah"
  std::string prompt;               // text, without bos
  std::vector<int32_t> prompt_ids;  // with bos, if the model has one
  std::string answer;               // expected, without surrounding blanks
  size_t context_tokens = 0;        // leading ones that come before the question proper
};

struct Dataset {
  std::vector<Question> train;
  std::vector<Question> held_out;
};

// Makes both splits of the spec's suite. Errors (kUsage): a suite or a task that is not known, no
// question that fits contextTokens (the message says which length would do).
Result<Dataset> makeDataset(const v1::Task& task, uint64_t seed, const Tokenizer& tokenizer,
                            int32_t bos_token);

// 0..1: how good `completion` (the decoded text after the prompt) is as the answer.
double grade(const Question& question, const std::string& completion);

// True once the decoded text holds a whole answer: the suite's stop mark was written.
bool isComplete(const std::string& completion);

// SHA-256 over both splits' prompts and answers: equal on every worker of a run.
std::string datasetDigest(const Dataset& dataset);

}  // namespace allot
