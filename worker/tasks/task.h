#pragma once
// Tasks: questions with answers, and how an answer is graded.
//
// A suite makes two datasets from a seed: `train` (rewards) and `heldOut` (evaluation), which share
// no context and no question. Datasets are immutable once made; any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "worker/model/tokenizer.h"
#include "worker/tasks/suite.h"

namespace allot {

struct Question {
  std::string task;                       // "niah"
  std::string prompt;                     // rendered: all that the model reads, without bos
  std::vector<int32_t> prompt_ids;        // with bos, if the model has one
  std::vector<std::string> answers;       // expected, without surrounding blanks
  std::vector<std::string> classes = {};  // all that could be answered, if the question has such
  // Leading prompt_ids that are the same whatever is asked: those of the context before the
  // question; 0 if it has none.
  size_t context_tokens = 0;
  // The longest answer in tokens, where spec.task.maxNewTokens leaves it to the task; else 0.
  uint32_t own_answer_tokens = 0;
};

struct Dataset {
  std::vector<Question> train;
  std::vector<Question> held_out;
};

struct Rendered {
  std::string text;          // without bos
  std::vector<int32_t> ids;  // with bos, if there is one
};

struct DatasetOptions {
  int32_t bos_token = -1;  // put before every plain prompt that does not begin with it; < 0: none
  // Makes what the model reads (a chat template); null: renderPlain. Drafts that are `bare` do not
  // come by here.
  std::function<Rendered(const Draft& draft)> render = nullptr;
  std::string path = {};           // where spec.task.path is; empty: there as it stands
  std::string held_out_path = {};  // the same of spec.task.heldOutPath
};

// System prompt, blank line, prompt, answer prefix.
std::string renderPlain(const Draft& draft);

// Makes both splits of the spec's suite. Errors (kUsage): a suite or a task that is not known, no
// question that fits contextTokens (the message says which length would do), a file that cannot be
// read, with its line, or that has too few questions.
Result<Dataset> makeDataset(const v1::Task& task, uint64_t seed, const Tokenizer& tokenizer,
                            const DatasetOptions& options);

// The most tokens that a question of this spec and its answer take together.
uint64_t longestRow(const v1::Task& task);

struct Grades {
  double score = 0;             // 0..1
  std::optional<double> other;  // by the task's other grader, if it has one
};
// How good `completion` (the decoded text after the prompt) is as the answer; a score that running
// it would give is left 0.
Grades grade(const v1::Task& task, const Question& question, const std::string& completion);

// kUsage, with what the flag means, where grading this task runs programs that the model writes and
// that is not `allowed`.
Status mayRunCode(const v1::Task& task, bool allowed);

struct Completion {
  const Question* question = nullptr;
  const std::string* text = nullptr;
};
// The same of several, one after the other, and beside each other those whose grader runs code.
// Errors: runPrograms' (worker/tasks/python_tests.h); without such a grader none.
Result<std::vector<Grades>> gradeAll(const v1::Task& task, std::span<const Completion> completions,
                                     const std::function<Status()>& go_on);

// What the graders of the score and of the other score took of it, in this order.
std::vector<v1::GraderReading> readings(const v1::Task& task, const Question& question,
                                        const std::string& completion);

// True once the decoded text holds a whole answer: the suite's stop mark was written.
bool isComplete(const v1::Task& task, const std::string& completion);

// SHA-256 over both splits' prompts and answers, and the lengths and classes that they have:
// equal on every worker of a run.
std::string datasetDigest(const Dataset& dataset);

// Null if there is none of this name.
const Suite* findSuite(std::string_view name);

}  // namespace allot
