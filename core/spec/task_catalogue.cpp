#include "core/spec/task_catalogue.h"

#include <algorithm>

#include "core/spec/choices.h"

namespace allot {
namespace {

// RULER's names. Its essays are copyrighted text: what is hidden in them comes from files, and two
// of these tasks are generated on the noise haystack instead, which their rows say.
SuiteInfo rulerInfo() {
  constexpr auto kAll = "ruler-all";
  SuiteInfo ruler = {
      "ruler",
      "NVIDIA's RULER: generated here, or made by its own scripts and read from a folder with "
      "TASK/validation.jsonl. contextTokens holds prompt and answer",
      TaskPath::kOptional,
      {{"niah_single_1", "one number hidden in repeated noise", kAll, "santa-niah"},
       {"niah_single_2", "one number hidden in essays", kAll, "santa-niah", true},
       {"niah_single_3", "one UUID hidden in essays", kAll, "", true},
       {"niah_multikey_1", "one number of four keys, in essays", kAll, "santa-niah", true},
       {"niah_multikey_2", "one number; every line is such a needle", kAll, "santa-niah"},
       {"niah_multikey_3", "one UUID of a UUID; every line is such a needle", kAll},
       {"niah_multivalue", "four numbers of one key; generated: in noise instead of essays", kAll,
        "santa-niah"},
       {"niah_multiquery", "one number of each of four keys; generated: in noise", kAll,
        "santa-niah"},
       {"vt", "five variables that have one value, through a chain of assignments", kAll},
       {"cwe",
        "the ten commonest words of a numbered list; generated: of pairs of words beyond 12000 "
        "tokens",
        kAll},
       {"fwe", "the three commonest of coded words with Zipf frequencies", kAll, "santa-fwe"},
       {"qa_1", "SQuAD's questions among many paragraphs", "ruler-part", "santa-substring", true},
       {"qa_2", "HotpotQA's questions among many paragraphs", "ruler-part", "santa-substring",
        true}}};
  // tokens_to_generate of its scripts/data/synthetic/constants.py, by kind of task.
  for (TaskInfo& task : ruler.tasks) {
    task.answer_tokens = task.name.starts_with("niah") ? 128
                         : task.name == "vt"           ? 30
                         : task.name == "cwe"          ? 120
                         : task.name == "fwe"          ? 50
                                                       : 32;
  }
  return ruler;
}

std::vector<SuiteInfo> makeSuites() {
  return {
      {"recall",
       "facts hidden in generated text, as the model in this repository was trained on",
       TaskPath::kNever,
       {{"niah", "one hidden value", "exact"},
        {"multi", "all values of one key, in order", "exact"},
        {"track", "a variable's value, through assignments", "exact"},
        {"freq", "the three commonest words", "exact"},
        {"qa", "an attribute of a person", "exact"},
        {"hop", "an attribute of a person's boss: joins two facts", "exact"}}},
      rulerInfo(),
      {"gsm8k",
       "grade-school mathematics, JSON lines as published",
       TaskPath::kRequired,
       {{"gsm8k", "a number after reasoning", "number-llama"}}},
      {"mmlu",
       "exam questions with four choices, CSV as published (a file or a folder) or JSON lines",
       TaskPath::kRequired,
       {{"mmlu", "one letter of four, after reasoning", "choice-llama"}}},
      {"longbench-v2",
       "long documents with four choices; those longer than contextTokens are cut in the middle",
       TaskPath::kRequired,
       {{"longbench-v2", "one letter of four", "longbench-choice"}}},
      {"jsonl",
       "your own: JSON lines with a prompt and its answers",
       TaskPath::kRequired,
       {{"jsonl", "whatever the prompts ask for", "contains-any"}}},
  };
}

template <typename Infos>
std::vector<std::string> namesOf(const Infos& infos) {
  std::vector<std::string> names;
  for (const auto& info : infos) names.emplace_back(info.name);
  return names;
}

std::string code(std::string_view name) { return "`" + std::string(name) + "`"; }

}  // namespace

const TaskInfo* SuiteInfo::find(std::string_view task) const {
  const auto found = std::find_if(tasks.begin(), tasks.end(),
                                  [&](const TaskInfo& info) { return info.name == task; });
  return found == tasks.end() ? nullptr : &*found;
}

std::vector<std::string> SuiteInfo::taskNames() const { return namesOf(tasks); }

const std::vector<SuiteInfo>& suiteCatalogue() {
  static const std::vector<SuiteInfo> suites = makeSuites();
  return suites;
}

const std::vector<GraderInfo>& graderCatalogue() {
  static const std::vector<GraderInfo> graders = {
      {"exact", "the first line, without blanks around it, is an answer"},
      {"ruler-all", "RULER's string_match_all: share of the answers that the text holds"},
      {"ruler-part", "RULER's string_match_part: the text holds one of the answers"},
      {"santa-niah", "share of the answers among the text's first four different integers"},
      {"santa-fwe", "share of the answers among the text's words"},
      {"santa-substring", "the text holds the first answer"},
      {"number-llama", "the first number of the last line, else of the last 25 words, is equal"},
      {"number-deepseek",
       "the number in the last \\boxed{}, else the last of the final 200 characters, is equal"},
      {"choice-llama", "the first letter A-D of the last line, else the last of the last 10 words"},
      {"choice-deepseek",
       "the last letter A-D in the last \\boxed{}, else in the final 300 characters"},
      {"longbench-choice", "the letter in \"The correct answer is (A)\""},
      {"contains-all", "the text holds every answer"},
      {"contains-any", "the text holds one of the answers"},
  };
  return graders;
}

const SuiteInfo* findSuiteInfo(std::string_view name) {
  for (const SuiteInfo& suite : suiteCatalogue()) {
    if (suite.name == name) return &suite;
  }
  return nullptr;
}

std::vector<std::string> suiteNames() { return namesOf(suiteCatalogue()); }

std::vector<std::string> graderChoices() {
  std::vector<std::string> names = namesOf(graderCatalogue());
  names.emplace_back(kSantaGraders);
  return names;
}

TaskGraders gradersOf(const v1::Task& spec, std::string_view task) {
  const TaskInfo& info = *findSuiteInfo(spec.suite())->find(task);
  std::string usual(info.grader);
  const std::string other(info.other_grader);
  if (promptStyleOf(spec) == PromptStyle::kDeepseek) {
    usual.replace(usual.find("llama"), 5, "deepseek");
  }
  if (spec.grader().empty() || spec.grader() == usual) return {usual, other};
  // Another one than RULER's: RULER's is recorded beside it. Elsewhere there is one way to grade.
  const std::string beside = spec.suite() == "ruler" ? usual : "";
  if (spec.grader() == kSantaGraders) return {other.empty() ? usual : other, beside};
  return {spec.grader(), beside};
}

uint32_t longestAnswer(const v1::Task& spec, std::string_view task) {
  if (spec.max_new_tokens() > 0) return spec.max_new_tokens();
  const SuiteInfo* suite = findSuiteInfo(spec.suite());
  const TaskInfo* info = suite == nullptr ? nullptr : suite->find(task);
  return info == nullptr ? 0 : info->answer_tokens;
}

std::string tasksMarkdown() {
  std::string table =
      "| suite | task | asks for | grader | file |\n| --- | --- | --- | --- | --- |\n";
  for (const SuiteInfo& suite : suiteCatalogue()) {
    const char* const path = suite.path == TaskPath::kRequired   ? "needed"
                             : suite.path == TaskPath::kOptional ? "can be read"
                                                                 : "";
    table +=
        "| " + code(suite.name) + " | | " + std::string(suite.meaning) + " | | " + path + " |\n";
    for (const TaskInfo& task : suite.tasks) {
      table +=
          "| | " + code(task.name) + " | " + std::string(task.meaning) + " | " + code(task.grader);
      if (!task.other_grader.empty()) table += ", " + code(task.other_grader);
      table += task.needs_path ? " | needed |\n" : " | |\n";
    }
  }
  return table;
}

std::string gradersMarkdown() {
  std::string table = "| grader | an answer is right if |\n| --- | --- |\n";
  for (const GraderInfo& grader : graderCatalogue()) {
    table += "| " + code(grader.name) + " | " + std::string(grader.meaning) + " |\n";
  }
  return table;
}

}  // namespace allot
