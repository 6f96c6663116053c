// Suite longbench-v2: long documents with four choices (Bai et al. 2025), a JSON array as published
// or JSON lines. The prompt is from the zero-shot run of its repository; a prompt that does not fit
// loses the middle of its document (there of the whole prompt).
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

Result<Record> recordOf(const JsonRecord& json) {
  Record record{.task = "longbench-v2", .draft = {}, .identity = {}};
  Draft& draft = record.draft;
  ALLOT_ASSIGN(const std::string context, json.text("context"));
  ALLOT_ASSIGN(const std::string question, json.text("question"));
  ALLOT_ASSIGN(const std::string answer, json.text("answer"));
  if (trimmed(answer).size() != 1 || trimmed(answer)[0] < 'A' || trimmed(answer)[0] > 'D') {
    return json.place().refuse("field \"answer\" is not one of A, B, C, D");
  }
  draft.prompt = "Please read the following text and answer the question below.\n\n<text>\n";
  draft.cut_begin = draft.prompt.size();
  draft.prompt += trimmed(context);
  draft.cut_end = draft.prompt.size();
  draft.prompt += "\n</text>\n\n";
  draft.question_start = draft.prompt.size();
  draft.prompt +=
      "What is the correct answer to this question: " + trimmed(question) + "\nChoices:";
  record.identity = question;
  for (const char letter : {'A', 'B', 'C', 'D'}) {
    ALLOT_ASSIGN(const std::string choice, json.text(std::string("choice_") + letter));
    draft.prompt.append("\n(").append(1, letter).append(") ").append(trimmed(choice));
  }
  draft.prompt +=
      "\n\nFormat your response as follows: \"The correct answer is (insert answer here)\".";
  draft.answers = {trimmed(answer)};
  return record;
}

Result<std::vector<Record>> readLongbench(const std::string& path, const v1::Task& /*spec*/) {
  return readRecords(path, recordOf);
}

}  // namespace

Suite longbenchSuite() { return {.name = "longbench-v2", .read = readLongbench}; }

}  // namespace allot
