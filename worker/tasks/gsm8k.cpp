// Suite gsm8k: grade-school mathematics (Cobbe et al. 2021), JSON lines with `question` and
// `answer`, whose last line is "#### 42". Prompts: the SANTA paper, Appendix O.
#include <regex>

#include "core/spec/choices.h"
#include "worker/tasks/number.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

constexpr const char* kGsm8kSystem =
    "You are a precise mathematician. Explain your reasoning step by step, then output ONLY the "
    "final number on a new line.";
constexpr const char* kGsm8kSuffix =
    "\n\nPlease reason step by step, and put your final numeric answer within \\boxed{}.";

Result<std::vector<Record>> readGsm8k(const std::string& path, const v1::Task& spec) {
  const bool deepseek = promptStyleOf(spec) == PromptStyle::kDeepseek;
  return readRecords(path, [&](const JsonRecord& json) -> Result<Record> {
    Record record{.task = "gsm8k", .draft = {}, .identity = {}};
    ALLOT_ASSIGN(const std::string question, json.text("question"));
    ALLOT_ASSIGN(const std::string answer, json.text("answer"));
    constexpr std::string_view kMark = "####";
    const size_t mark = answer.rfind(kMark);
    std::string gold = mark == std::string::npos ? "" : trimmed(answer.substr(mark + kMark.size()));
    // Of an answer that is nothing else, blanks separate the thousands.
    if (std::regex_match(gold, std::regex("[0-9]{1,3}( [0-9]{3})+"))) std::erase(gold, ' ');
    if (!findNumber(gold)) {
      return json.place().refuse("field \"answer\" does not end with \"#### \" and a number");
    }
    record.identity = question;
    record.draft.answers = {gold};
    record.draft.prompt = trimmed(question);
    if (deepseek) record.draft.prompt += kGsm8kSuffix;
    if (!deepseek) record.draft.system = kGsm8kSystem;
    return record;
  });
}

}  // namespace

Suite gsm8kSuite() { return {.name = "gsm8k", .read = readGsm8k}; }

}  // namespace allot
