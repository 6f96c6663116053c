#pragma once
// The texts of `allot explain`: keys, methods, models, tasks and metrics. Each has a layout for a
// terminal, as a document (JSON or YAML) and as Markdown for docs/. Any thread. Pure, except that
// methodsText() and tasksText() have bold parts if usesColour() is true.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allot/kernels/method.h"
#include "core/result.h"

namespace allot {

// Returns all methods: those of decode, then those of prefill alone.
std::vector<kernels::MethodTraits> allMethods();

// Returns the table of methods, then that of their parameters.
std::string methodsText();

// Returns the table of methods for docs/reference/methods.md.
std::string methodsMarkdown();

// Returns every suite with its tasks, then every grader.
std::string tasksText();
nlohmann::json tasksJson();

// One subject: a document's kind and fields, a text for a terminal, and the Markdown of its whole
// topic.
struct Explanation {
  std::string kind;
  nlohmann::json fields;
  std::string text;
  std::string markdown;
};

struct Topic {
  std::string name;
  std::string meaning;
};
const std::vector<Topic>& explainTopics();

// Explains a topic, a key or section of the experiment file (spec.policy, spec.policy.totalBudget),
// a method, a suite, a task or a grader; "": lists the topics. Other subjects are kUsage, with a
// suggestion if one is near.
Result<Explanation> explain(const std::string& subject, size_t width, bool colour);

}  // namespace allot
