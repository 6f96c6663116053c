#pragma once
// Suites whose questions stand in a folder, a file of JSON lines for each task: TASK.jsonl.
//
// Functions without state: any thread.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {

// The records of the spec's tasks, by `recordOf`. Errors (kUsage): a path that is no folder, and
// what readJson() says; `suite` is for messages.
Result<std::vector<Record>> readTaskFolder(
    const std::string& path, const v1::Task& spec, std::string_view suite,
    const std::function<Result<Record>(const std::string& task, const JsonRecord& json)>& recordOf);

// A record whose prompt is made of what goes before the context, the context and what follows it,
// and loses its middle, whatever that is, where it is too long. Its identity is the context, so
// that questions about one text are on one side.
Record recordAbout(const std::string& task, std::string_view before, std::string_view context,
                   std::string_view behind);

}  // namespace allot
