#pragma once
// Reads files of questions record by record: JSON lines, a JSON array, or CSV.
//
// The files come from strangers: every fault is reported as a sentence with the file and, for a
// fault in the text, the line. Functions without state: any thread.
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "worker/tasks/suite.h"

namespace allot {

// The place at which a record begins, for messages.
struct RecordPlace {
  std::string file;
  size_t line = 1;

  std::string text() const;  // "FILE: line 3"
  tl::unexpected<Error> refuse(const std::string& what) const;
};

// One JSON object.
class JsonRecord {
 public:
  JsonRecord(RecordPlace place, nlohmann::json object)
      : place_(std::move(place)), object_(std::move(object)) {}

  const RecordPlace& place() const { return place_; }
  bool has(const std::string& field) const { return object_.contains(field); }
  // Returns a string; kUsage if it is missing, blank or of another type.
  Result<std::string> text(const std::string& field) const;
  // Returns a string, a number, or a list of at least one of them, each as text without blanks at
  // its ends. kUsage for other values, and for a blank entry unless may_be_blank.
  Result<std::vector<std::string>> texts(const std::string& field, bool may_be_blank = false) const;
  // Returns a string, which may be blank; "" if it is missing or null; kUsage for another type.
  Result<std::string> textOrNone(const std::string& field) const;
  // Returns the answers as they stand, with blanks at their ends, for graders that compare blanks:
  // a string, a number or a list of them. Answers of blanks alone are left out; kUsage if none is
  // left.
  Result<std::vector<std::string>> verbatimAnswers(const std::string& field) const;
  // Returns the value, of any type; kUsage if it is missing.
  Result<const nlohmann::json*> value(const std::string& field) const;

 private:
  // Returns a string, a number, or a list of them, as written.
  Result<std::vector<std::string>> writtenTexts(const std::string& field) const;

  RecordPlace place_;
  nlohmann::json object_;
};

// Calls `use` with every object of a file of JSON lines, or of a file that is one JSON array. Blank
// lines, a byte order mark and CRLF are ignored. kUsage if the file has no question, is larger than
// 8 GiB or is malformed; kIo if it cannot be read to its end.
Status readJson(const std::string& file, const std::function<Status(const JsonRecord&)>& use);

// Returns what `recordOf` makes of every object that readJson() reads. Errors are those of both.
Result<std::vector<Record>> readRecords(
    const std::string& file, const std::function<Result<Record>(const JsonRecord&)>& recordOf);

// Calls `use` with every row of a CSV file (RFC 4180), the first included: it has no header. Blank
// lines are skipped. kUsage if a row has another number of fields than `columns`, and readJson()'s
// errors.
Status readCsv(
    const std::string& file, size_t columns,
    const std::function<Status(const RecordPlace&, const std::vector<std::string>&)>& use);

using TaskRecordOf = std::function<Result<Record>(const std::string& task, const JsonRecord& json)>;

// Returns the records of each task's file, PATH/TASK plus `ending`, as readRecords() does.
Result<std::vector<Record>> readTasks(const std::string& path, const v1::Task& spec,
                                      std::string_view ending, const TaskRecordOf& recordOf);

// Reads the folder `path`, which has a file TASK.jsonl for each task. kUsage if the path is no
// folder; the errors of readTasks(). `suite` is named in messages.
Result<std::vector<Record>> readTaskFolder(const std::string& path, const v1::Task& spec,
                                           std::string_view suite, const TaskRecordOf& recordOf);

// Makes a record whose prompt is the text before the context, the context and the text behind it. A
// prompt that is too long loses its middle, wherever that falls. The record's identity is the
// context, so that all questions about one text are in one split.
Record recordAbout(const std::string& task, std::string_view before, std::string_view context,
                   std::string_view behind);

// Returns the text without spaces, tabs, CR and LF at either end.
std::string trimmed(const std::string& text);

}  // namespace allot
