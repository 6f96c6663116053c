#pragma once
// Tasks: questions with answers, and the grading of answers.
//
// A suite makes two datasets from a seed: `train` (rewards) and `heldOut` (evaluation). They share
// no seed of a question and no Record::identity. Datasets are immutable once made; any thread.
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
  std::string prompt;                     // rendered: the whole text for the model, without bos
  std::vector<int32_t> prompt_ids;        // with bos, if the model has one
  std::vector<std::string> answers;       // the references
  std::vector<std::string> classes = {};  // all possible answers, of a classification question
  // Length of the prefix of prompt_ids that is independent of the question: its context; 0 if it
  // has none.
  size_t context_tokens = 0;
  // The longest answer in tokens if spec.task.maxNewTokens leaves it to the task; else 0.
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
  int32_t bos_token = -1;  // put before plain prompts that do not begin with it; < 0: none
  // Renders a draft (by a chat template); null: renderPlain. Not called for drafts that are `bare`.
  std::function<Rendered(const Draft& draft)> render = nullptr;
  std::string path = {};           // replaces spec.task.path; empty: the spec's path is used
  std::string held_out_path = {};  // replaces spec.task.heldOutPath in the same way
};

// Returns system prompt, blank line, prompt and answer prefix.
std::string renderPlain(const Draft& draft);

// Makes both splits of the spec's suite. Errors (kUsage): an unknown suite or task; a length out of
// range; no question that fits contextTokens (the message advises a length); a fault of a file, or
// too few questions in it. kIo if a file cannot be read to its end.
Result<Dataset> makeDataset(const v1::Task& task, uint64_t seed, const Tokenizer& tokenizer,
                            const DatasetOptions& options);

// Returns the most tokens that a prompt of this spec and its answer take together.
uint64_t longestRow(const v1::Task& task);

struct Grades {
  double score = 0;             // 0..1
  std::optional<double> other;  // by the task's other grader, if it has one
};
// Grades `completion`, the decoded text after the prompt. A score that requires running the
// completion stays 0.
Grades grade(const v1::Task& task, const Question& question, const std::string& completion);

// Returns kUsage, with the meaning of the flag, if grading this task runs programs that the model
// writes and that is not `allowed`.
Status mayRunCode(const v1::Task& task, bool allowed);

struct Completion {
  const Question* question = nullptr;
  const std::string* text = nullptr;
};
// Grades several completions in order; those whose grader runs code are run in parallel. Errors:
// runPrograms' (worker/tasks/python_tests.h); without such a grader none.
Result<std::vector<Grades>> gradeAll(const v1::Task& task, std::span<const Completion> completions,
                                     const std::function<Status()>& go_on);

// Returns the parts of the completion that the graders of score and other score compared, in order.
std::vector<v1::GraderReading> readings(const v1::Task& task, const Question& question,
                                        const std::string& completion);

// Returns true once the decoded text holds a whole answer, by Suite::complete if there is one.
bool isComplete(const v1::Task& task, const std::string& completion);

// Returns the SHA-256 of both splits' prompts, answers, classes and own_answer_tokens. It is equal
// on every worker of a run.
std::string datasetDigest(const Dataset& dataset);

// Returns null if there is no suite of this name.
const Suite* findSuite(std::string_view name);

}  // namespace allot
