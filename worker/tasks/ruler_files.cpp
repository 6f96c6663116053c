#include "worker/tasks/ruler_files.h"

#include <filesystem>

#include "worker/tasks/record_reader.h"

namespace allot {
namespace {

// Returns where the question at the end of a prompt of RULER's begins: its last line of that form.
size_t questionStart(const std::string& prompt) {
  for (const char* const mark :
       {"\nQuestion: ", "\nWhat are all the special magic ", "\nWhat is the special magic "}) {
    if (const size_t at = prompt.rfind(mark); at != std::string::npos) return at + 1;
  }
  return 0;
}

}  // namespace

Result<std::vector<Record>> readRuler(const std::string& path, const v1::Task& spec) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return badInput(path +
                    ": is no folder; suite ruler reads the one that RULER's scripts made, with "
                    "TASK/validation.jsonl in it");
  }
  std::vector<Record> records;
  for (const std::string& task : spec.tasks()) {
    const std::string file = path + "/" + task + "/validation.jsonl";
    const Status done = readJson(file, [&](const JsonRecord& json) -> Status {
      Record record{.task = task, .draft = {}, .identity = {}};
      Draft& draft = record.draft;
      ALLOT_ASSIGN(draft.prompt, json.text("input"));
      ALLOT_ASSIGN(draft.answers, json.texts("outputs"));
      if (json.has("answer_prefix")) {
        ALLOT_ASSIGN(const nlohmann::json* prefix, json.value("answer_prefix"));
        if (!prefix->is_string()) {
          return json.place().refuse("field \"answer_prefix\" is not a string");
        }
        draft.answer_prefix = prefix->get<std::string>();
      }
      draft.bare = true;
      draft.question_start = questionStart(draft.prompt);
      // A question of SQuAD is the same among other paragraphs; elsewhere the whole prompt is the
      // identity.
      record.identity =
          task.starts_with("qa_") ? draft.prompt.substr(draft.question_start) : draft.prompt;
      records.push_back(std::move(record));
      return {};
    });
    ALLOT_TRY(done);
  }
  return records;
}

}  // namespace allot
