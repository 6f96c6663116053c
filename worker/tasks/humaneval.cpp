// Suite humaneval: functions to be completed from their head and docstring (Chen et al. 2021), JSON
// lines as published. The model completes the published prompt verbatim, outside any chat turn:
// Appendix T of the SANTA paper only says "standard".
#include <algorithm>
#include <string_view>

#include "worker/tasks/answer_text.h"
#include "worker/tasks/python_tests.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

bool isIdentifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto other = [&](char c) { return letter(c) || isAsciiDigit(c); };
  return !text.empty() && letter(text.front()) && std::all_of(text.begin(), text.end(), other);
}

Result<Record> problemOf(const JsonRecord& json) {
  Record record{.task = "humaneval", .draft = {}, .identity = {}};
  ALLOT_ASSIGN(record.draft.prompt, json.text("prompt"));
  ALLOT_ASSIGN(const std::string test, json.text("test"));
  ALLOT_ASSIGN(const std::string entry, json.text("entry_point"));
  if (!isIdentifier(entry)) {
    return json.place().refuse("field \"entry_point\" is not the name of a Python function");
  }
  record.draft.bare = true;
  record.identity = record.draft.prompt;
  record.draft.answers = {record.draft.prompt, "\n" + test + "\ncheck(" + entry + ")"};
  return record;
}

Result<std::vector<Record>> readHumaneval(const std::string& path, const v1::Task& /*spec*/) {
  return readRecords(path, problemOf);
}

}  // namespace

Suite humanevalSuite() { return {.name = "humaneval", .read = readHumaneval, .complete = hasStop}; }

}  // namespace allot
