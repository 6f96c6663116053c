#include "worker/tasks/record_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/json_text.h"
#include "core/utf8.h"
#include "worker/model/json_file.h"
#include "worker/tasks/answer_text.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr std::string_view kBlanks = " \t\r\n";
// RULER's thousand questions of a million tokens have half of it.
constexpr uintmax_t kMostBytes = uintmax_t{8} << 30;

bool isUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8Length(text.substr(at));
    if (length == 0) return false;
    at += length;
  }
  return true;
}

Result<std::string> readWhole(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    return badInput(file + ": is a folder; name the file with the questions");
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return badInput(file + ": cannot be read: is the path right?");
  if (!std::filesystem::is_regular_file(file, ignored)) {
    return badInput(file + ": is not a plain file");  // it may have no end
  }
  const uintmax_t size = std::filesystem::file_size(file, ignored);
  if (size > kMostBytes) {
    return badInput(file + ": has more than the " + std::to_string(kMostBytes >> 30) +
                    " GiB that are read");
  }
  std::string text;
  text.reserve(size);
  text.assign(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return fail(ErrorCode::kIo, file + ": cannot be read to its end");
  ALLOT_TRY(checkNoLfsPointer(text, file));
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (text.find_first_not_of(kBlanks) == std::string::npos) {
    return badInput(file + ": is empty: it has no question");
  }
  return text;
}

// The only field of an object that stands for a number, which has the number's text.
constexpr const char* kNumber = "\x01number";

// Returns JSON in which each number but short integers is an object of kNumber, since a double may
// not hold its last digit.
// Requires: text is JSON.
std::string withNumbersAsText(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_string || (c != '-' && (c < '0' || c > '9'))) {
      if (c == '"') in_string = !in_string;
      const size_t count = in_string && c == '\\' ? 2 : 1;
      out.append(text.substr(at, count));
      at += count;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of("-+.0123456789Ee", at), text.size());
    const std::string number(text.substr(at, end - at));
    const bool exact = number.size() <= 18 && number.find_first_of(".Ee") == std::string::npos;
    out += exact ? number : json{{kNumber, number}}.dump();
    at = end;
  }
  return out;
}

bool takesNumberName(const json& value) {
  if (value.is_object() && value.contains(kNumber)) return true;
  return value.is_structured() && std::any_of(value.begin(), value.end(), takesNumberName);
}

// Returns an answer's text; nothing if it is neither a string nor a number.
std::optional<std::string> answerText(const json& answer) {
  if (answer.is_string()) return answer.get<std::string>();
  if (answer.is_number()) return answer.dump();
  if (answer.is_object() && answer.size() == 1 && answer.contains(kNumber)) return answer[kNumber];
  return std::nullopt;
}

Status useObject(const RecordPlace& place, std::string_view text,
                 const std::function<Status(const JsonRecord&)>& use) {
  if (!isUtf8(text)) return place.refuse("is not UTF-8");
  ALLOT_ASSIGN(json object, parseJson(text, place.text()));
  if (!object.is_object()) return place.refuse("is JSON, but no object ({...})");
  if (takesNumberName(object)) {
    return place.refuse("has a field " + inQuotes(kNumber) + ", which none may be called");
  }
  if (const std::string exact = withNumbersAsText(text); exact != text) {
    ALLOT_ASSIGN(object, parseJson(exact, place.text()));
  }
  return use(JsonRecord(place, std::move(object)));
}

// Returns the end of the JSON value that begins at `at`: behind its closing bracket, or at the
// comma or bracket that follows it.
size_t endOfValue(std::string_view text, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return text.size();
}

// Reads a JSON array element by element: the largest of these files has half a gigabyte.
Status readArray(const std::string& file, std::string_view text, size_t open,
                 const std::function<Status(const JsonRecord&)>& use) {
  RecordPlace place{file,
                    1 + static_cast<size_t>(std::count(
                            text.begin(), text.begin() + static_cast<std::ptrdiff_t>(open), '\n'))};
  const auto skipBlanks = [&](size_t at) {
    for (; at < text.size() && kBlanks.find(text[at]) != std::string_view::npos; ++at) {
      place.line += text[at] == '\n';
    }
    return at;
  };
  for (size_t at = skipBlanks(open + 1); at < text.size();) {
    if (text[at] == ']') {
      at = skipBlanks(at + 1);
      return at == text.size() ? Status() : place.refuse("has text behind the end of its array");
    }
    const size_t end = endOfValue(text, at);
    const std::string_view element = text.substr(at, end - at);
    ALLOT_TRY(useObject(place, element, use));
    place.line += static_cast<size_t>(std::count(element.begin(), element.end(), '\n'));
    at = skipBlanks(end);
    if (at < text.size() && text[at] == ',') {
      at = skipBlanks(at + 1);
      if (at < text.size() && text[at] == ']') {
        return place.refuse("has a comma before the ] of its array; remove it");
      }
    } else if (at < text.size() && text[at] != ']') {
      return place.refuse("has neither a comma nor a ] behind an element of its array");
    }
  }
  return place.refuse("its array does not end: is the file whole?");
}

// Reads the row of CSV at `at`, and moves `at` and `place` behind the row.
class CsvRow {
 public:
  CsvRow(std::string_view text, size_t* at, RecordPlace* place)
      : text_(text), at_(*at), place_(*place) {}

  Result<std::vector<std::string>> read() {
    const RecordPlace start = place_;
    std::vector<std::string> fields;
    while (true) {
      const bool quoted = at_ < text_.size() && text_[at_] == '"';
      std::string field;
      if (quoted && !quotedField(&field)) {
        return start.refuse("has a quoted field that does not end");
      }
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') field += text_[at_++];
      const bool last = at_ >= text_.size() || text_[at_] == '\n';
      if (last && field.ends_with('\r')) field.pop_back();
      fields.push_back(std::move(field));
      if (at_ < text_.size()) ++at_;
      if (!last) continue;
      ++place_.line;
      return fields;
    }
  }

 private:
  bool quotedField(std::string* field) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      place_.line += c == '\n';
      if (c == '"') {
        ++at_;
        if (at_ >= text_.size() || text_[at_] != '"') return true;
      }
      *field += c;
    }
    return false;
  }

  std::string_view text_;
  size_t& at_;
  RecordPlace& place_;
};

}  // namespace

Result<std::vector<Record>> readTasks(const std::string& path, const v1::Task& spec,
                                      std::string_view ending, const TaskRecordOf& recordOf) {
  std::vector<Record> records;
  for (const std::string& task : spec.tasks()) {
    ALLOT_ASSIGN(auto more,
                 readRecords(std::string(path).append("/").append(task).append(ending),
                             [&](const JsonRecord& json) { return recordOf(task, json); }));
    std::move(more.begin(), more.end(), std::back_inserter(records));
  }
  return records;
}

Result<std::vector<Record>> readTaskFolder(const std::string& path, const v1::Task& spec,
                                           std::string_view suite, const TaskRecordOf& recordOf) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return badInput(path + ": is no folder; suite " + std::string(suite) +
                    " reads the one that has TASK.jsonl in it for each task");
  }
  return readTasks(path, spec, ".jsonl", recordOf);
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

std::string trimmed(const std::string& text) { return std::string(stripped(text, kBlanks)); }

tl::unexpected<Error> RecordPlace::refuse(const std::string& what) const {
  return badInput(text() + ": " + what);
}

std::string RecordPlace::text() const { return file + ": line " + std::to_string(line); }

Result<const json*> JsonRecord::value(const std::string& field) const {
  const auto found = object_.find(field);
  if (found == object_.end()) return place_.refuse("has no field \"" + field + "\"");
  return &*found;
}

Result<std::string> JsonRecord::text(const std::string& field) const {
  ALLOT_ASSIGN(const json* found, value(field));
  if (!found->is_string()) {
    return place_.refuse("field \"" + field + "\" is not a string");
  }
  auto text = found->get<std::string>();
  if (trimmed(text).empty()) return place_.refuse("field \"" + field + "\" is blank");
  return text;
}

Result<std::vector<std::string>> JsonRecord::writtenTexts(const std::string& field) const {
  ALLOT_ASSIGN(const json* found, value(field));
  const json all = found->is_array() ? *found : json::array({*found});
  std::vector<std::string> texts;
  for (const json& one : all) {
    auto text = answerText(one);
    if (!text) {
      return place_.refuse("field \"" + field + "\" is not a string, a number or a list of them");
    }
    texts.push_back(std::move(*text));
  }
  return texts;
}

Result<std::vector<std::string>> JsonRecord::texts(const std::string& field,
                                                   bool may_be_blank) const {
  ALLOT_ASSIGN(auto texts, writtenTexts(field));
  for (std::string& text : texts) {
    text = trimmed(text);
    if (text.empty() && !may_be_blank) {
      return place_.refuse("field \"" + field + "\" has a blank entry");
    }
  }
  if (texts.empty()) return place_.refuse("field \"" + field + "\" is an empty list");
  return texts;
}

Result<std::string> JsonRecord::textOrNone(const std::string& field) const {
  const auto found = object_.find(field);
  if (found == object_.end() || found->is_null()) return std::string();
  if (!found->is_string()) return place_.refuse("field \"" + field + "\" is not a string");
  return found->get<std::string>();
}

Result<std::vector<std::string>> JsonRecord::verbatimAnswers(const std::string& field) const {
  ALLOT_ASSIGN(auto texts, writtenTexts(field));
  std::erase_if(texts, [](const std::string& text) { return trimmed(text).empty(); });
  if (texts.empty()) return place_.refuse("field \"" + field + "\" has no answer");
  return texts;
}

Result<std::vector<Record>> readRecords(
    const std::string& file, const std::function<Result<Record>(const JsonRecord&)>& recordOf) {
  std::vector<Record> records;
  const Status done = readJson(file, [&](const JsonRecord& json) -> Status {
    ALLOT_ASSIGN(Record record, recordOf(json));
    records.push_back(std::move(record));
    return {};
  });
  ALLOT_TRY(done);
  return records;
}

Status readJson(const std::string& file, const std::function<Status(const JsonRecord&)>& use) {
  ALLOT_ASSIGN(const std::string whole, readWhole(file));
  const std::string_view text(whole);
  if (const size_t first = text.find_first_not_of(kBlanks); text[first] == '[') {
    return readArray(file, text, first, use);
  }
  RecordPlace place{file, 0};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    ++place.line;
    at = end + 1;
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    ALLOT_TRY(useObject(place, line, use));
  }
  return {};
}

Status readCsv(
    const std::string& file, size_t columns,
    const std::function<Status(const RecordPlace&, const std::vector<std::string>&)>& use) {
  ALLOT_ASSIGN(const std::string text, readWhole(file));
  RecordPlace place{file, 1};
  for (size_t at = 0; at < text.size();) {
    const RecordPlace start = place;
    ALLOT_ASSIGN(const auto fields, CsvRow(text, &at, &place).read());
    if (fields.size() == 1 && trimmed(fields[0]).empty()) continue;
    if (fields.size() != columns) {
      return start.refuse("has " + std::to_string(fields.size()) + " fields instead of " +
                          std::to_string(columns));
    }
    for (const std::string& field : fields) {
      if (!isUtf8(field)) return start.refuse("is not UTF-8");
    }
    ALLOT_TRY(use(start, fields));
  }
  return {};
}

}  // namespace allot
