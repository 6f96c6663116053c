// Suite infinitebench: InfiniteBench (Zhang et al. 2024), a folder with TASK.jsonl as published,
// whose lines have `context`, `input`, `answer` and, where one of four is chosen, `options`.
//
// The wording of the prompts is part of the benchmark. It is from its src/prompt.py for open models
// ("yarn-mistral"), whose last words begin the answer. Without a chat template
// (spec.model.chatTemplate: none), as its script for these models asks, these words follow the
// prompt; with one they begin the model's turn. Too long a prompt loses its middle, as there.
#include <algorithm>
#include <array>

#include "worker/tasks/answer_text.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

constexpr std::array<char, 4> kOptionLetters = {'A', 'B', 'C', 'D'};

Result<std::vector<std::string>> optionsOf(const JsonRecord& json) {
  ALLOT_ASSIGN(auto options, json.texts("options"));
  if (options.size() != kOptionLetters.size()) {
    return json.place().refuse("field \"options\" has " + std::to_string(options.size()) +
                               " entries instead of 4");
  }
  return options;
}

std::string listed(const std::vector<std::string>& options) {
  std::string text;
  for (size_t i = 0; i < options.size(); ++i) {
    text.append("\n").append(1, kOptionLetters[i]).append(". ").append(options[i]);
  }
  return text;
}

// Returns the right answer and its letter: of the file, or by its place among the options.
Result<std::vector<std::string>> choiceOf(const JsonRecord& json,
                                          const std::vector<std::string>& options) {
  ALLOT_ASSIGN(auto answer, json.texts("answer"));
  const auto isLetter = [](const std::string& text) {
    return text.size() == 1 &&
           std::find(kOptionLetters.begin(), kOptionLetters.end(), text[0]) != kOptionLetters.end();
  };
  if (answer.size() == 2 && isLetter(answer[1])) return answer;
  const auto found = std::find(options.begin(), options.end(), answer[0]);
  if (answer.size() != 1 || found == options.end()) {
    return json.place().refuse(
        "field \"answer\" is neither one of the options nor an option with "
        "its letter");
  }
  const auto place = static_cast<size_t>(found - options.begin());
  answer.emplace_back(1, kOptionLetters[place]);
  return answer;
}

// Returns the first call like func_12(-3) in a question of code_run; "" if there is none.
std::string callIn(std::string_view input) {
  constexpr std::string_view kName = "func_";
  for (size_t at = input.find(kName); at != std::string_view::npos;
       at = input.find(kName, at + 1)) {
    size_t end = at + kName.size();
    const auto digits = [&] {
      const size_t begin = end;
      while (end < input.size() && isAsciiDigit(input[end])) ++end;
      return end > begin;
    };
    const auto take = [&](char c) { return end < input.size() && input[end] == c && ++end > 0; };
    if (!digits() || !take('(')) continue;
    take('-');
    if (digits() && take(')')) return std::string(input.substr(at, end - at));
  }
  return "";
}

// Returns "What is the largest number in the following list?" for a question that has "The largest
// number of"; "" if it has no such words.
std::string listQuestion(std::string_view input) {
  constexpr std::string_view kThe = "The ", kOf = " of";
  for (size_t at = input.find(kThe); at != std::string_view::npos; at = input.find(kThe, at + 1)) {
    const std::string_view line = input.substr(at, input.find('\n', at) - at);
    const size_t of = line.rfind(kOf);
    if (of == std::string_view::npos || of <= kThe.size()) continue;
    std::string asked(line.substr(0, of));
    for (char& c : asked) c = asciiLower(c);
    return "What is " + asked + " in the following list?";
  }
  return "";
}

// The wording of a task; {input}, {options}, {question}, {call} and {function} are the question's.
struct TaskWording {
  std::string_view task;
  std::string_view before;  // the context
  std::string_view behind;
  std::string_view answer_prefix = "";
};
constexpr auto kTaskWordings = std::to_array<TaskWording>(
    {{"passkey",
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
      "I will quiz you about the important information.\n\n",
      "\n\n{input}\n\n", "The pass key is"},
     {"number_string",
      "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you "
      "about the important information there.\n\n",
      "\n\n{input}\n\n", "The sequence of digits is"},
     {"kv_retrieval",
      "Extract the value corresponding to the specified key in the JSON object below.\n\n",
      "\n\n{input}"},
     {"longbook_sum_eng", "Summarize the book below.\n\n", "\n\n", "Summary:"},
     {"longbook_choice_eng", "Read the book and answer the question.\n\n",
      "\n\nQuestion: {input}{options}\n\n", "The letter of the correct answer is"},
     {"longbook_qa_eng",
      "Read the book and answer the question. Be very concise in your answer.\n\n",
      "\n\nQuestion: {input}\n", "Answer:"},
     {"longdialogue_qa_eng",
      "Below is a dialogue script where one random occurrence of a character name is replaced with "
      "\"$$MASK$$\", and you should try to guess who that character is.\n\n",
      "\n\n", "The name that has been replaced with $$MASK$$ is likely"},
     {"math_find", "{question}\n\n", "\n\n{input}"},
     {"code_run", "There is a function called {function} in the following Python code.\n\n",
      "\n\nPlease compute the exact value of {call}. ", "The value of {call} is"},
     {"code_debug",
      "Following is a Python code where exactly one of the functions/methods has a deliberate "
      "error that makes it crash.\n\n",
      "\n\nOptions:{options}\n\n", "The correct option is:"}});

// Returns what stands for {name} in a wording.
Result<std::string> partOf(const JsonRecord& json, std::string_view name) {
  if (name == "options") {
    ALLOT_ASSIGN(const auto options, optionsOf(json));
    return listed(options);
  }
  ALLOT_ASSIGN(std::string input, json.text("input"));
  if (name == "input") return input;
  if (name == "question") {
    std::string question = listQuestion(input);
    if (!question.empty()) return question;
    return json.place().refuse("field \"input\" does not say \"The ... of\" what is asked for");
  }
  const std::string call = callIn(input);
  if (call.empty()) {
    return json.place().refuse("field \"input\" has no call such as func_1(2)");
  }
  return name == "call" ? call : call.substr(0, call.find('('));
}

// Returns the answers; where one of the options is asked for, it and its letter.
Result<std::vector<std::string>> answersOf(const JsonRecord& json, const TaskWording& wording) {
  if (wording.behind.find("{options}") == std::string_view::npos) return json.texts("answer");
  ALLOT_ASSIGN(const auto options, optionsOf(json));
  return choiceOf(json, options);
}

Result<std::string> filled(const JsonRecord& json, std::string_view wording) {
  std::string text;
  for (size_t open = wording.find('{'); open != std::string_view::npos; open = wording.find('{')) {
    const size_t close = wording.find('}', open);
    ALLOT_ASSIGN(const std::string part, partOf(json, wording.substr(open + 1, close - open - 1)));
    text.append(wording.substr(0, open)).append(part);
    wording.remove_prefix(close + 1);
  }
  return text.append(wording);
}

Result<Record> infinitebenchRecord(const std::string& task, const JsonRecord& json) {
  ALLOT_ASSIGN(const std::string context, json.text("context"));
  const TaskWording& wording =
      *std::find_if(kTaskWordings.begin(), kTaskWordings.end(),
                    [&](const TaskWording& one) { return one.task == task; });
  ALLOT_ASSIGN(const std::string before, filled(json, wording.before));
  ALLOT_ASSIGN(const std::string behind, filled(json, wording.behind));
  Record record = recordAbout(task, before, context, behind);
  ALLOT_ASSIGN(record.draft.answer_prefix, filled(json, wording.answer_prefix));
  ALLOT_ASSIGN(record.draft.answers, answersOf(json, wording));
  return record;
}

Result<std::vector<Record>> readInfinitebench(const std::string& path, const v1::Task& spec) {
  return readTaskFolder(path, spec, "infinitebench", infinitebenchRecord);
}

}  // namespace

Suite infinitebenchSuite() { return {.name = "infinitebench", .read = readInfinitebench}; }

}  // namespace allot
