#pragma once
// Suite: what one family of tasks must supply; the datasets are built from it.
//
// A suite generates questions (`draft`), reads them from files (`read`), or both. To add one, write
// one file here that returns its Suite, add its line to suites.h, and describe it in
// core/spec/task_catalogue.cpp (docs/extending.md). Functions without state: any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// One question before it is made tokens.
struct Draft {
  std::string system;  // system prompt; may be empty
  std::string prompt;
  std::string answer_prefix;  // how the answer begins, given to the model
  std::vector<std::string> answers;
  std::vector<std::string> classes = {};  // all that could be answered, if the question has such
  // Where in `prompt` the question proper begins, behind the context that it is asked about; 0:
  // there is no such context.
  size_t question_start = 0;
  // The part of `prompt` that may lose its middle if all of it is too long; empty: none may.
  size_t cut_begin = 0;
  size_t cut_end = 0;
  bool bare = false;  // complete as it is: no chat template goes around it
};

struct DraftRequest {
  std::string_view task;
  uint64_t seed = 0;
  int64_t size = 0;           // in the task's own unit: words, lines, ...
  int64_t prompt_tokens = 0;  // the room that the prompt is for
};

// One question of a file.
struct Record {
  std::string task;
  Draft draft;
  // What makes it this question, for the split: records of equal identity (but for case and blanks)
  // are on one side.
  std::string identity;
};

struct Suite {
  std::string name;

  // The tasks that `draft` makes.
  std::vector<std::string> generated = {};
  // The question that a request stands for, about `size` long (the task's minimum if that is more);
  // none if the one that came up has no clear answer. Pure.
  std::optional<Draft> (*draft)(const DraftRequest& request) = nullptr;
  // About how many units of size make 10000 tokens of the task's prompts; null: it is measured.
  int64_t (*size_per_10000_tokens)(std::string_view task) = nullptr;

  // Reads the questions of the spec's tasks from `path`. Errors (kUsage) name file and line.
  Result<std::vector<Record>> (*read)(const std::string& path, const v1::Task& spec) = nullptr;

  // Every draft is bare, so that the model needs no chat template.
  bool bare = false;
  // contextTokens is for prompt and answer, not for the prompt alone.
  bool context_holds_answer = false;
  // True once the text holds a whole answer; null: the text alone never says so.
  bool (*complete)(const std::string& completion) = nullptr;
};

}  // namespace allot
