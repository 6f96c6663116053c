#pragma once
// The texts of `allot explain`: keys, methods, models, tasks and metrics. Laid out for a terminal,
// as documents, and as the Markdown in the repository's documents. Any thread. Pure, except that
// methodsText() and tasksText() are bold in parts if usesColour() is true.
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
// Returns the topics that `allot explain` lists.
const std::vector<Topic>& explainTopics();

// Explains a topic, a key or section of the experiment file (spec.policy, spec.policy.totalBudget),
// a method, a suite, a task or a grader; "": lists the topics. kUsage, if possible with a
// suggestion, for others.
Result<Explanation> explain(const std::string& subject, size_t width, bool colour);

}  // namespace allot
