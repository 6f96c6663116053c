#include "cli/question_view.h"

#include <algorithm>
#include <set>
#include <vector>

#include "cli/terminal.h"
#include "core/evaluation/answers.h"
#include "core/spec/choices.h"
#include "core/spec/task_catalogue.h"
#include "core/words.h"

namespace allot {
namespace {

constexpr size_t kColumns = 80;
// Widths of cells of a table, in bytes.
constexpr size_t kMethodCell = 12;
constexpr size_t kScheduleCell = 11;

// Returns the lines of the text, each behind "  | ".
std::string quotedLines(std::string_view text) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const std::string margin = "  | ";
  std::string all;
  for (const std::string& line : legibleLines(text, kColumns - margin.size())) {
    all += margin + line + "\n";
  }
  return all;
}

// Wraps a sentence that has names from strangers, and indents it.
std::string indented(const std::string& text) {
  std::string all;
  for (const std::string& line : legibleLines(text, kColumns - 2)) all += "  " + line + "\n";
  return all;
}

std::string figure(double score) { return formatted("%.3f", score); }

std::string readingText(const v1::GraderReading& reading, double score) {
  const std::string grader = reading.grader() + ": " + figure(score);
  if (reading.whole()) return grader + ", of the whole text";
  if (reading.taken().empty()) return grader + ", for it found no answer in the text";
  return grader + ", for it took \"" + reading.taken() + "\"";
}

std::string answerText(const v1::Answer& answer) {
  if (!answer.text().empty() || answer.left_out() > 0) {
    std::string text = quotedLines(answer.text());
    if (answer.left_out() > 0) {
      text += "  ... " + std::to_string(answer.left_out()) + " bytes are left out ...\n";
      text += quotedLines(answer.end());
    }
    return text;
  }
  if (answer.tokens_size() == 0) return "  (no text)\n";
  std::string tokens;
  for (const uint32_t token : answer.tokens()) tokens += " " + std::to_string(token);
  return indented("(no text; its tokens, the first " + std::to_string(answer.tokens_size()) + ":" +
                  tokens + ")");
}

nlohmann::json answerJson(const v1::Answer& answer) {
  nlohmann::json readings = nlohmann::json::array();
  for (const v1::GraderReading& reading : answer.readings()) {
    readings.push_back(
        {{"grader", reading.grader()},
         {"taken", reading.whole() ? nlohmann::json() : nlohmann::json(reading.taken())}});
  }
  return {{"text", answer.text()},
          {"bytes_left_out", answer.left_out()},
          {"end", answer.end()},
          {"tokens", std::vector(answer.tokens().begin(), answer.tokens().end())},
          {"graders", readings}};
}

}  // namespace

void QuestionView::add(const v1::EvaluationResult& result) {
  const v1::EvaluationUnit& unit = result.unit();
  for (const v1::QuestionScore& score : result.scores()) {
    if (score.question() != choice_.question) continue;
    Cell cell{unit, score, result.worker(), std::nullopt, result.answers().left_out()};
    for (const v1::Answer& answer : result.answers().answers()) {
      if (answer.question() == choice_.question) cell.answer = answer;
    }
    // Prompts of one question are equal, except for the length at which they were cut.
    if (cell.answer &&
        (!asked_ || cell.answer->prompt_end().size() > asked_->prompt_end().size())) {
      asked_ = cell.answer;
    }
    if (choice_.version && unit.policy_version() != *choice_.version) return;
    if (choice_.budget != 0 && unit.total_budget() != choice_.budget) return;
    const auto key = std::tuple(unit.total_budget() > 0, methodsName(unit), unit.schedule_name(),
                                unit.total_budget(), unit.repeat());
    const auto known = cells_.find(key);
    if (known != cells_.end() && known->second.unit.policy_version() > unit.policy_version()) {
      return;
    }
    cells_[key] = std::move(cell);
    return;
  }
}

QuestionView::Kept QuestionView::keptOf(const Cell& cell) const {
  const v1::Evaluation& evaluation = experiment_.spec().evaluation();
  if (cell.answer) return Kept::kHere;
  if (keptAnswersOf(evaluation) == KeptAnswers::kNone) return Kept::kNever;
  if (!isKept(evaluation, cell.score)) return Kept::kRight;
  return cell.left_out > 0 ? Kept::kNoRoom : Kept::kMissing;
}

std::string QuestionView::wordOf(Kept kept) {
  return std::string(wordAt(kept, {"kept", "right", "none", "no room", "missing"}));
}

const char* QuestionView::noteOn(Kept kept) {
  switch (kept) {
    case Kept::kHere:
      return "";
    case Kept::kRight:
      return "right: not kept, for spec.evaluation.answers is wrong; all keeps these, too.";
    case Kept::kNever:
      return "none: this run keeps no answers, for spec.evaluation.answers is none; `allot fork` "
             "begins another run.";
    case Kept::kNoRoom:
      return "no room: the answers of a run have 64 MiB, in equal shares for all its evaluation "
             "units, and the questions before it took this one's; evaluations that come less often "
             "(spec.evaluation.everyUpdates) have larger shares.";
    case Kept::kMissing:
      return "missing: it should be there and is not; what was stored in its place is no answer.";
  }
  return "";
}

std::string QuestionView::taskOf(const Cell& cell) const {
  const auto& tasks = experiment_.spec().task().tasks();
  const auto index = static_cast<int>(cell.score.task());
  return index < tasks.size() ? tasks.Get(index) : "";
}

nlohmann::json QuestionView::json() const {
  nlohmann::json evaluations = nlohmann::json::array();
  for (const auto& [key, cell] : cells_) {
    evaluations.push_back(
        {{"method", methodsName(cell.unit)},
         {"schedule", cell.unit.schedule_name()},
         {"total_budget", cell.unit.total_budget()},
         {"version", cell.unit.policy_version()},
         {"repeat", cell.unit.repeat()},
         {"score", cell.score.score()},
         {"other_score", cell.score.has_other_score() ? nlohmann::json(cell.score.other_score())
                                                      : nlohmann::json()},
         {"tokens", cell.score.tokens()},
         {"worker", cell.worker},
         {"kept", wordOf(keptOf(cell))},
         {"answer", cell.answer ? answerJson(*cell.answer) : nlohmann::json()}});
  }
  nlohmann::json document = {{"question", choice_.question},
                             {"task", cells_.empty() ? "" : taskOf(cells_.begin()->second)},
                             {"prompt_end", nullptr},
                             {"expected", nullptr},
                             {"evaluations", evaluations}};
  if (asked_) {
    document["prompt_end"] = asked_->prompt_end();
    document["prompt_bytes_left_out"] = asked_->prompt_left_out();
    document["expected"] = std::vector(asked_->expected().begin(), asked_->expected().end());
    document["expected_bytes_left_out"] = asked_->expected_left_out();
  }
  return document;
}

std::string QuestionView::head(const std::string& run_id) const {
  const uint64_t last = experiment_.spec().task().held_out_questions() - uint64_t{1};
  const std::string task = cells_.empty() ? "" : taskOf(cells_.begin()->second);
  return printable(experiment_.name(), 60) + "  run " + printable(run_id) + "\nquestion " +
         std::to_string(choice_.question) + " of 0.." + std::to_string(last) + ", task " +
         printable(task, 60) + "\n";
}

std::string QuestionView::asked() const {
  if (!asked_) return "prompt and expected answer: not known here, where no answer is kept\n";
  const v1::Answer& asked = *asked_;
  std::string text = "prompt";
  if (asked.prompt_left_out() > 0) {
    text += ", its end (" + std::to_string(asked.prompt_left_out()) + " bytes are before it)";
  }
  text += ":\n" + quotedLines(asked.prompt_end()) + "expected";
  if (asked.expected_left_out() > 0) {
    text += " (" + std::to_string(asked.expected_left_out()) + " more bytes are left out)";
  }
  text += ":\n";
  for (const std::string& expected : asked.expected()) text += quotedLines(expected);
  return text;
}

std::string QuestionView::table(bool colour) const {
  const bool other = std::any_of(cells_.begin(), cells_.end(), [](const auto& cell) {
    return cell.second.score.has_other_score();
  });
  const bool repeated = std::any_of(cells_.begin(), cells_.end(),
                                    [](const auto& cell) { return cell.second.unit.repeat() > 0; });
  std::vector<std::string> header = {"score"};
  if (other) header.emplace_back("other");
  if (repeated) header.emplace_back("repeat");
  for (const char* name : {"method", "schedule", "budget", "version", "tokens", "answer"}) {
    header.emplace_back(name);
  }
  TextTable table(header);
  size_t number = 0;
  for (const auto& [key, cell] : cells_) {
    std::vector<std::string> row = {figure(cell.score.score())};
    if (other) {
      row.push_back(cell.score.has_other_score() ? figure(cell.score.other_score()) : "");
    }
    if (repeated) row.push_back(std::to_string(cell.unit.repeat()));
    const uint64_t budget = cell.unit.total_budget();
    row.push_back(printable(methodsName(cell.unit), kMethodCell));
    row.push_back(printable(cell.unit.schedule_name(), kScheduleCell));
    row.push_back(budget > 0 ? budgetText(experiment_.spec().policy(), budget) : "");
    row.push_back(std::to_string(cell.unit.policy_version()));
    row.push_back(std::to_string(cell.score.tokens()));
    const Kept kept = keptOf(cell);
    row.push_back(kept == Kept::kHere ? std::to_string(++number) : wordOf(kept));
    table.add(row);
  }
  return table.text(colour);
}

std::string QuestionView::answers(bool colour) const {
  std::string text;
  size_t number = 0;
  for (const auto& [key, cell] : cells_) {
    if (!cell.answer) continue;
    const uint64_t budget = cell.unit.total_budget();
    const std::string title =
        "answer " + std::to_string(++number) + ": " + printable(methodsName(cell.unit), 100) +
        ", " + printable(cell.unit.schedule_name(), 40) +
        (budget > 0 ? ", budget " + budgetText(experiment_.spec().policy(), budget) : "") +
        ", version " + std::to_string(cell.unit.policy_version()) +
        (cell.unit.repeat() > 0 ? ", repeat " + std::to_string(cell.unit.repeat()) : "");
    text += "\n" + toned(title, Tone::kBold, colour) + "\n" + answerText(*cell.answer);
    const double scores[] = {cell.score.score(), cell.score.other_score()};
    for (int i = 0; i < std::min(cell.answer->readings_size(), 2); ++i) {
      text += indented(readingText(cell.answer->readings(i), scores[i]));
    }
    const uint32_t longest = longestAnswer(experiment_.spec().task(), taskOf(cell));
    if (longest > 0 && cell.score.tokens() >= longest) {
      text += indented("it has all the " + std::to_string(longest) +
                       " tokens that spec.task.maxNewTokens allows: it may have been cut short");
    }
  }
  return text;
}

std::string QuestionView::notes() const {
  std::set<Kept> seen;
  for (const auto& [key, cell] : cells_) seen.insert(keptOf(cell));
  seen.erase(Kept::kHere);
  std::string text;
  for (const Kept kept : seen) text += indented(noteOn(kept));
  return text.empty() ? "" : "\n" + text;
}

std::string QuestionView::text(const std::string& run_id, bool colour) const {
  return head(run_id) + asked() + "\n" + table(colour) + answers(colour) + notes();
}

}  // namespace allot
