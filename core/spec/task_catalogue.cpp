#include "core/spec/task_catalogue.h"

#include <algorithm>

#include "core/spec/choices.h"

namespace allot {
namespace {

TaskInfo task(std::string_view name, std::string_view meaning, std::string_view grader,
              uint32_t answer_tokens) {
  return {name, meaning, grader, "", false, answer_tokens};
}

// RULER's essays are copyrighted, so that tasks with essays need files. Two of them are generated
// in noise instead, as their rows say.
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

// LongBench (v1; Bai et al. 2023): its tasks in English and of code. Lengths of answers are those
// of its config/dataset2maxlen.json.
SuiteInfo longbenchV1Info() {
  return {
      "longbench-v1",
      "LongBench's tasks in English and of code, from a folder with TASK.jsonl as published; "
      "prompts longer than contextTokens lose their middle, as there",
      TaskPath::kRequired,
      {task("narrativeqa", "questions about a story or script", "f1", 128),
       task("qasper", "questions about a paper", "f1", 128),
       task("multifieldqa_en", "questions about one text", "f1", 64),
       task("hotpotqa", "questions that join two of several passages", "f1", 32),
       task("2wikimqa", "questions that join several passages", "f1", 32),
       task("musique", "questions that join up to four passages", "f1", 32),
       task("gov_report", "a one-page summary of a report", "rouge-l", 512),
       task("qmsum", "what a meeting said about something", "rouge-l", 512),
       task("multi_news", "a one-page summary of several news", "rouge-l", 512),
       task("trec", "the type of a question, by examples", "longbench-class", 64),
       task("triviaqa", "trivia, with a passage and examples", "f1-line", 32),
       task("samsum", "a dialogue in a few sentences, by examples", "rouge-l-line", 128),
       task("passage_count", "how many paragraphs differ", "longbench-count", 32),
       task("passage_retrieval_en", "which paragraph an abstract is of", "longbench-paragraph", 32),
       task("lcc", "the next line of a file of code", "longbench-code", 64),
       task("repobench-p", "the next line, with other files of the repository", "longbench-code",
            64)}};
}

// InfiniteBench (Zhang et al. 2024): its tasks in English with answers that spec.task.maxNewTokens
// allows. Names are those of its files, lengths of answers those of its eval_utils.py.
SuiteInfo infinitebenchInfo() {
  return {
      "infinitebench",
      "InfiniteBench's tasks in English (except Math.Calc, which has answers of 30000 tokens), "
      "from "
      "a folder with TASK.jsonl as published; prompts longer than contextTokens lose their middle, "
      "as there",
      TaskPath::kRequired,
      {task("passkey", "Retrieve.PassKey: a number hidden in noise", "infinitebench-number", 6),
       task("number_string", "Retrieve.Number: a number of repeated digits hidden in noise",
            "infinitebench-number", 12),
       task("kv_retrieval", "Retrieve.KV: the value of a key among many", "infinitebench-word", 50),
       task("longbook_sum_eng", "En.Sum: a summary of a novel", "rouge-lsum", 1200),
       task("longbook_choice_eng", "En.MC: one letter of four, about a novel",
            "infinitebench-choice", 40),
       task("longbook_qa_eng", "En.QA: a question about a novel", "f1", 40),
       task("longdialogue_qa_eng", "En.Dia: whose name is masked in a script", "infinitebench-name",
            40),
       task("math_find", "Math.Find: the largest, the median, ... of a list", "infinitebench-find",
            3),
       task("code_run", "Code.Run: what a chain of functions returns", "infinitebench-run", 5),
       task("code_debug", "Code.Debug: one letter of four, which function crashes",
            "infinitebench-debug", 5)}};
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
      longbenchV1Info(),
      infinitebenchInfo(),
      {"humaneval",
       "Python functions to be completed, JSON lines as published; answers are run (pass@1)",
       TaskPath::kRequired,
       {{"humaneval", "the body of a function, from its head and docstring", "python-tests"}}},
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
      {"number-llama-literal",
       "the SANTA paper's Table 23 to the letter: as number-llama, of whole numbers alone, so that "
       "18.5 is 18"},
      {"number-deepseek-literal",
       "its Table 21 to the letter: the last \\boxed{}, else the final 200 characters as they are, "
       "by the rules of PRM800K's grader"},
      {"choice-llama-literal",
       "its Table 24 to the letter: the first a-d of what follows the last newline, words included "
       "(\"The correct answer is B\" is C), else the last of the last 10 words"},
      {"choice-deepseek-literal",
       "its Table 22 to the letter: the last a-d, words included, of the last \\boxed{}, else of "
       "the final 300 characters"},
      {"longbench-choice", "the letter in \"The correct answer is (A)\""},
      {"f1", "SQuAD's F1: words shared with an answer, case, punctuation and articles left out"},
      {"f1-line", "the same of the first line"},
      {"rouge-l",
       "ROUGE-L's F of the whole text, as LongBench's package `rouge` reckons it (by the sets of "
       "words)"},
      {"rouge-l-line", "the same of the first line"},
      {"rouge-lsum", "ROUGE-Lsum's F, as InfiniteBench's package `rouge_score` reckons it"},
      {"longbench-code",
       "likeness of the first line that is no comment: twice the longest common subsequence of "
       "characters over both lengths, in whole percent"},
      {"longbench-class",
       "1 over the number of classes that the first line names, if it names the right one"},
      {"longbench-count", "share of the text's numbers that are the answer"},
      {"longbench-paragraph", "share of the text's numbers that are the right paragraph's"},
      {"infinitebench-number", "the text's first number, as it stands, is the answer"},
      {"infinitebench-word", "one of the text's words is the answer"},
      {"infinitebench-name", "one of the text's words, in capitals, is the answer"},
      {"infinitebench-choice",
       "the text begins with the letter or with the answer, or these follow \"answer is\" and its "
       "like, or its first word of A-D is the letter"},
      {"infinitebench-debug",
       "the text begins with the letter and a full stop or colon, or letter or function follow "
       "\"answer is:\" and its like"},
      {"infinitebench-run", "the text's last word is the number"},
      {"infinitebench-find", "the text's first number is equal"},
      {"contains-all", "the text holds every answer"},
      {"contains-any", "the text holds one of the answers"},
      {"python-tests",
       "it is Python, cut at the first `\\nclass`, `\\ndef`, `\\n#`, `\\nif` or `\\nprint`, and "
       "its tests pass; needs `--allow-code-execution`",
       true},
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
  // Suite ruler records RULER's own grader beside any other one; other suites record one grader.
  const std::string beside = spec.suite() == "ruler" ? usual : "";
  if (spec.grader() == kSantaGraders) return {other.empty() ? usual : other, beside};
  return {spec.grader(), beside};
}

bool runsCode(std::string_view grader) {
  const auto& all = graderCatalogue();
  return std::any_of(all.begin(), all.end(),
                     [&](const GraderInfo& info) { return info.name == grader && info.runs_code; });
}

bool runsCode(const v1::Task& spec) {
  const SuiteInfo* suite = findSuiteInfo(spec.suite());
  return std::any_of(spec.tasks().begin(), spec.tasks().end(), [&](const std::string& task) {
    if (suite == nullptr || suite->find(task) == nullptr) return false;  // refused elsewhere
    const TaskGraders graders = gradersOf(spec, task);
    return runsCode(graders.score) || runsCode(graders.other);
  });
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
