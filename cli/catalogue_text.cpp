#include "cli/catalogue_text.h"

#include <algorithm>
#include <vector>

#include "allot/kernels/method.h"
#include "cli/terminal.h"
#include "core/spec/task_catalogue.h"

namespace allot {
namespace {

using nlohmann::json;

std::string gradersOfTask(const TaskInfo& task) {
  std::string names(task.grader);
  if (!task.other_grader.empty()) names.append(", ").append(task.other_grader);
  return names;
}

const char* pathWord(TaskPath path) {
  switch (path) {
    case TaskPath::kNever:
      return "never";
    case TaskPath::kOptional:
      return "optional";
    case TaskPath::kRequired:
      return "required";
  }
  return "";
}

}  // namespace

std::vector<kernels::MethodTraits> allMethods() {
  const auto table = kernels::methodTable();
  std::vector<kernels::MethodTraits> methods(table.begin(), table.end());
  std::stable_partition(methods.begin(), methods.end(), [](const kernels::MethodTraits& method) {
    return kernels::includes(method.phases, kernels::Phase::kDecode);
  });
  return methods;
}

std::string methodsText() {
  TextTable table({"method", "phases", "on a GPU", "promise", "what it reads"});
  for (const kernels::MethodTraits& method : allMethods()) {
    table.add({std::string(method.name), std::string(wordsOf(method.phases)),
               std::string(wordsOf(method.gpu)), std::string(wordsOf(method.promise)),
               std::string(method.reads)});
  }
  return table.text(usesColour()) +
         "\nParameters follow the name, as in `vattention epsilon=0.1 delta=0.1`:\n\n" +
         kernels::methodParametersMarkdown();
}

std::string methodsMarkdown() {
  std::string table =
      "| method | what it reads | promise | phases | on a GPU |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const kernels::MethodTraits& method : allMethods()) {
    table.append("| `").append(method.name).append("` | ").append(method.reads);
    table.append(" | ").append(wordsOf(method.promise)).append(" | ");
    table.append(wordsOf(method.phases)).append(" | ").append(wordsOf(method.gpu)).append(" |\n");
  }
  return table;
}

std::string tasksText() {
  std::string text;
  for (const SuiteInfo& suite : suiteCatalogue()) {
    text += "suite " + std::string(suite.name) + ": " + std::string(suite.meaning) +
            "; spec.task.path: " + pathWord(suite.path) + "\n";
    TextTable table({"task", "asks for", "graders"});
    for (const TaskInfo& task : suite.tasks) {
      table.add({std::string(task.name),
                 std::string(task.meaning) + (task.needs_path ? " (from files only)" : ""),
                 gradersOfTask(task)});
    }
    text += table.text(usesColour()) + "\n";
  }
  TextTable table({"grader", "an answer is right if"});
  for (const GraderInfo& grader : graderCatalogue()) {
    table.add({std::string(grader.name), std::string(grader.meaning)});
  }
  return text + table.text(usesColour());
}

json tasksJson() {
  json suites = json::array();
  for (const SuiteInfo& suite : suiteCatalogue()) {
    json tasks = json::array();
    for (const TaskInfo& task : suite.tasks) {
      json one = {{"name", task.name},
                  {"meaning", task.meaning},
                  {"grader", task.grader},
                  {"needs_path", task.needs_path}};
      if (!task.other_grader.empty()) one["other_grader"] = task.other_grader;
      tasks.push_back(std::move(one));
    }
    suites.push_back({{"name", suite.name},
                      {"meaning", suite.meaning},
                      {"path", pathWord(suite.path)},
                      {"tasks", std::move(tasks)}});
  }
  json graders = json::array();
  for (const GraderInfo& grader : graderCatalogue()) {
    graders.push_back({{"name", grader.name}, {"meaning", grader.meaning}});
  }
  return {{"suites", std::move(suites)}, {"graders", std::move(graders)}};
}

}  // namespace allot
