#pragma once
// The catalogue of suites, their tasks and the graders of answers. The code that makes and grades
// questions is in worker/tasks. Constants and pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"

namespace allot {

struct TaskInfo {
  std::string_view name;
  std::string_view meaning;
  std::string_view grader;             // used if spec.task.grader is empty
  std::string_view other_grader = "";  // the SANTA paper's, recorded, too; "": none
  bool needs_path = false;             // allot cannot generate its questions
  uint32_t answer_tokens = 0;          // longest answer as published; 0: unknown
};

// Whether a suite's questions come from spec.task.path.
enum class TaskPath { kNever, kOptional, kRequired };

struct SuiteInfo {
  std::string_view name;
  std::string_view meaning;
  TaskPath path = TaskPath::kNever;
  std::vector<TaskInfo> tasks;

  const TaskInfo* find(std::string_view task) const;  // null if there is none
  std::vector<std::string> taskNames() const;
};

struct GraderInfo {
  std::string_view name;
  std::string_view meaning;
  bool runs_code = false;  // runs programs that the model wrote
};

const std::vector<SuiteInfo>& suiteCatalogue();
const std::vector<GraderInfo>& graderCatalogue();

const SuiteInfo* findSuiteInfo(std::string_view name);  // null if there is none
std::vector<std::string> suiteNames();
// Returns the values of spec.task.grader: the names of graderCatalogue(), and kSantaGraders.
std::vector<std::string> graderChoices();

// The value of spec.task.grader that stands for each task's grader in the SANTA paper.
inline constexpr std::string_view kSantaGraders = "santa";

struct TaskGraders {
  std::string score;  // grader of QuestionScore.score
  std::string other;  // grader of QuestionScore.other_score; "": none
};
// Returns the graders of a task.
// Requires: the catalogue has the suite and the task.
TaskGraders gradersOf(const v1::Task& spec, std::string_view task);

// Return true if this grader, or a grader of this task section, runs programs that the model wrote.
// A worker does that only with --allow-code-execution.
bool runsCode(std::string_view grader);
bool runsCode(const v1::Task& spec);

// Returns the most tokens of an answer: spec.task.maxNewTokens or, if that is 0,
// TaskInfo::answer_tokens.
uint32_t longestAnswer(const v1::Task& spec, std::string_view task);

// Return the tables of docs/reference/tasks.md, between its marks "tasks" and "graders".
std::string tasksMarkdown();
std::string gradersMarkdown();

}  // namespace allot
