#pragma once
// Reads suites that are a folder with a file of JSON lines for each task: TASK.jsonl.
//
// Functions without state: any thread.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {

// Returns the records of the spec's tasks, by `recordOf`. Errors (kUsage): the path is no folder,
// and readJson()'s. `suite` is for messages.
Result<std::vector<Record>> readTaskFolder(
    const std::string& path, const v1::Task& spec, std::string_view suite,
    const std::function<Result<Record>(const std::string& task, const JsonRecord& json)>& recordOf);

// Makes a record whose prompt is the text before the context, the context and the text behind it. A
// prompt that is too long loses its middle, wherever that falls. The record's identity is the
// context, so that all questions about one text are on one side.
Record recordAbout(const std::string& task, std::string_view before, std::string_view context,
                   std::string_view behind);

}  // namespace allot
