#include "worker/tasks/task_folder.h"

#include <filesystem>

namespace allot {

Result<std::vector<Record>> readTaskFolder(
    const std::string& path, const v1::Task& spec, std::string_view suite,
    const std::function<Result<Record>(const std::string& task, const JsonRecord& json)>&
        recordOf) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return badInput(path + ": is no folder; suite " + std::string(suite) +
                    " reads the one that has TASK.jsonl in it for each task");
  }
  std::vector<Record> records;
  for (const std::string& task : spec.tasks()) {
    const Status done =
        readJson(path + "/" + task + ".jsonl", [&](const JsonRecord& json) -> Status {
          ALLOT_ASSIGN(Record record, recordOf(task, json));
          records.push_back(std::move(record));
          return {};
        });
    ALLOT_TRY(done);
  }
  return records;
}

Record recordAbout(const std::string& task, std::string_view before, std::string_view context,
                   std::string_view behind) {
  Record record{.task = task, .draft = {}, .identity = std::string(context)};
  Draft& draft = record.draft;
  draft.prompt.append(before).append(context);
  draft.question_start = draft.prompt.size();
  draft.prompt.append(behind);
  draft.cut_end = draft.prompt.size();
  return record;
}

}  // namespace allot
