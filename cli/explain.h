#pragma once
// The texts of `allot explain`: keys, methods, models, tasks and metrics. Laid out for a terminal,
// as documents, and as the Markdown in the repository's documents. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"
#include "core/result.h"

namespace allot {

// Returns all methods: those of decode, then those of prefill alone.
std::vector<kernels::MethodTraits> allMethods();

// Returns every method with its meaning, then the table of parameters.
std::string methodsText();

// Returns the table of methods in docs/reference/methods.md, between its marks "methods".
std::string methodsMarkdown();

// Returns every suite with its tasks, then every grader.
std::string tasksText();
nlohmann::json tasksJson();

// One subject: a document's kind and fields, a text of at most `width` columns, and Markdown.
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
// Returns methods, models, tasks, metrics, spec; `allot explain` lists them.
const std::vector<Topic>& explainTopics();

// Explains a topic, a key or section of the experiment file (spec.policy, spec.policy.totalBudget),
// or a method by its name; "": lists the topics. kUsage, with a suggestion, for others.
Result<Explanation> explain(const std::string& subject, size_t width, bool colour);

}  // namespace allot
