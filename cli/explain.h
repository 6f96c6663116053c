#pragma once
// What `allot explain` says: the tables of keys, methods, models, tasks and metrics, laid out for a
// terminal, as documents, and as the Markdown that the repository's documents hold. Pure functions,
// any thread.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

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
// methods, models, tasks, metrics, spec; `allot explain` lists them.
const std::vector<Topic>& explainTopics();

// Of a topic; of a key or a section of the experiment file (spec.policy, spec.policy.totalBudget);
// of a method by its name; "": of the topics. kUsage, with what was probably meant, for others.
Result<Explanation> explain(const std::string& subject, size_t width, bool colour);

}  // namespace allot
