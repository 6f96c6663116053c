#pragma once
// Suite: the interface of a family of tasks, from which the datasets are built.
//
// A suite generates questions (`draft`), reads them from files (`read`), or both. To add a suite,
// write one file here that returns its Suite, add its line to ALLOT_SUITES, and describe it in
// core/spec/task_catalogue.cpp (docs/extending.md). Functions without state: any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// One question before it is tokenised.
struct Draft {
  std::string system;  // system prompt; may be empty
  std::string prompt;
  std::string answer_prefix;  // beginning of the answer, given to the model
  std::vector<std::string> answers;
  std::vector<std::string> classes = {};  // all possible answers, of a classification question
  // Position in `prompt` at which the question itself begins, behind its context; 0: there is no
  // separate context.
  size_t question_start = 0;
  // The part of `prompt` whose middle may be removed if the prompt is too long; empty: none.
  size_t cut_begin = 0;
  size_t cut_end = 0;
  bool bare = false;  // complete: no chat template is applied
};

struct DraftRequest {
  std::string_view task;
  uint64_t seed = 0;
  int64_t size = 0;           // in the task's own unit: words, lines, ...
  int64_t prompt_tokens = 0;  // available for the prompt
};

// One question of a file.
struct Record {
  std::string task;
  Draft draft;
  // Identifies the question for the split. Records whose identities differ by case and blanks alone
  // are in one split.
  std::string identity;
};

struct Suite {
  std::string name;

  // The tasks that `draft` generates.
  std::vector<std::string> generated = {};
  // Returns the question of a request, about `size` long or of the task's minimum if that is more.
  // Returns none if the generated question has no clear answer. Pure.
  std::optional<Draft> (*draft)(const DraftRequest& request) = nullptr;
  // Returns about how many units of size make 10000 tokens of a task's prompts; null: it is
  // measured.
  int64_t (*size_per_10000_tokens)(std::string_view task) = nullptr;

  // Reads the questions of the spec's tasks from `path`. kUsage and kIo name the file, and the line
  // of a fault in it.
  Result<std::vector<Record>> (*read)(const std::string& path, const v1::Task& spec) = nullptr;

  // All drafts are bare: the model needs no chat template.
  bool bare = false;
  // contextTokens limits prompt and answer together, not the prompt alone.
  bool context_holds_answer = false;
  // Returns true once the text holds a whole answer; null: the text alone never decides that.
  bool (*complete)(const std::string& completion) = nullptr;
};

// The functions that return the suites, each in a file of its own.
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
#define ALLOT_DECLARE_SUITE(function) Suite function();
ALLOT_SUITES(ALLOT_DECLARE_SUITE)
#undef ALLOT_DECLARE_SUITE

}  // namespace allot
