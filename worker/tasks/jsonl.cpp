// Suite jsonl: questions of your own, JSON lines with a prompt and its answers.
#include "core/spec/task_catalogue.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

Status checkField(const JsonRecord& json, const std::string& field, const char* key) {
  if (json.has(field)) return {};
  return json.place().refuse("has no field \"" + field + "\"; " + key + " says which one it is");
}

Result<std::vector<Record>> readJsonl(const std::string& path, const v1::Task& spec) {
  return readRecords(path, [&](const JsonRecord& json) -> Result<Record> {
    Record record{.task = "jsonl", .draft = {}, .identity = {}};
    ALLOT_TRY(checkField(json, spec.prompt_field(), "spec.task.promptField"));
    ALLOT_TRY(checkField(json, spec.answers_field(), "spec.task.answersField"));
    ALLOT_ASSIGN(record.draft.prompt, json.text(spec.prompt_field()));
    // In programs every blank counts.
    ALLOT_ASSIGN(record.draft.answers, runsCode(spec) ? json.verbatimAnswers(spec.answers_field())
                                                      : json.texts(spec.answers_field()));
    record.identity = record.draft.prompt;
    return record;
  });
}

}  // namespace

Suite jsonlSuite() { return {.name = "jsonl", .read = readJsonl}; }

}  // namespace allot
