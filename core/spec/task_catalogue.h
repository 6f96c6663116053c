#pragma once
// The catalogue of tasks: which suites there are, which tasks each has and by which grader an
// answer is scored. Without the code that makes or grades them (worker/tasks), so that the spec's
// check, the command line and the documents can speak of them; a test of the worker's holds the two
// together. Constants and pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"

namespace allot {

struct TaskInfo {
  std::string_view name;
  std::string_view meaning;
  std::string_view grader;             // where spec.task.grader is empty
  std::string_view other_grader = "";  // of the SANTA paper, recorded beside it; "": none
  bool needs_path = false;             // allot cannot generate it
  uint32_t answer_tokens = 0;          // its own longest answer; 0: it has none
};

enum class TaskPath { kNever, kOptional, kRequired };

struct SuiteInfo {
  std::string_view name;
  std::string_view meaning;
  TaskPath path = TaskPath::kNever;
  std::vector<TaskInfo> tasks;

  const TaskInfo* find(std::string_view task) const;  // null: it has no such task
  std::vector<std::string> taskNames() const;
};

struct GraderInfo {
  std::string_view name;
  std::string_view meaning;
  bool runs_code = false;  // it runs what the model wrote
};

const std::vector<SuiteInfo>& suiteCatalogue();
const std::vector<GraderInfo>& graderCatalogue();

const SuiteInfo* findSuiteInfo(std::string_view name);  // null: there is none
std::vector<std::string> suiteNames();
// The values of spec.task.grader: all of graderCatalogue(), and kSantaGraders.
std::vector<std::string> graderChoices();

// A value of spec.task.grader: for each task the one that the SANTA paper grades it by.
inline constexpr std::string_view kSantaGraders = "santa";

// The grader of a task's score, and of QuestionScore.other_score; "": none. Needs a suite and a
// task that the catalogue has.
struct TaskGraders {
  std::string score;
  std::string other;
};
TaskGraders gradersOf(const v1::Task& spec, std::string_view task);

// Whether grading by this grader, or in this experiment's task, runs programs that the model wrote,
// which a worker does only with --allow-code-execution.
bool runsCode(std::string_view grader);
bool runsCode(const v1::Task& spec);

// Tokens that an answer to a question of this task may have: spec.task.maxNewTokens, or where that
// is 0 the task's own.
uint32_t longestAnswer(const v1::Task& spec, std::string_view task);

// The tables of docs/reference/tasks.md, between its marks "tasks" and "graders".
std::string tasksMarkdown();
std::string gradersMarkdown();

}  // namespace allot
