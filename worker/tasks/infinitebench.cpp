// Suite infinitebench: InfiniteBench (Zhang et al. 2024), a folder with TASK.jsonl as published,
// whose lines have `context`, `input`, `answer` and, where one of four is chosen, `options`.
//
// The wording of the prompts is part of the benchmark. It is from its src/prompt.py for open models
// ("yarn-mistral"), whose last words begin the answer. Without a chat template
// (spec.model.chatTemplate: none), as its script for these models asks, these words follow the
// prompt; with one they begin the model's turn. Too long a prompt loses its middle, as there.
#include <algorithm>
#include <array>

#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

constexpr std::array<char, 4> kOptionLetters = {'A', 'B', 'C', 'D'};

bool isDigitOfCall(char c) { return c >= '0' && c <= '9'; }

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
      while (end < input.size() && isDigitOfCall(input[end])) ++end;
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
    for (char& c : asked) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    return "What is " + asked + " in the following list?";
  }
  return "";
}

// Makes the record of one task, with prompt and answers.
using Reader = Result<Record> (*)(const std::string& task, const JsonRecord& json,
                                  const std::string& context);

Result<Record> hiddenNumber(const std::string& task, const JsonRecord& json,
                            const std::string& context) {
  const bool passkey = task == "passkey";
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  Record record = recordAbout(
      task,
      passkey
          ? "There is an important info hidden inside a lot of irrelevant text. Find it and "
            "memorize it. I will quiz you about the important information.\n\n"
          : "There is an important info hidden inside a lot of irrelevant text. Find it. I will "
            "quiz you about the important information there.\n\n",
      context, "\n\n" + input + "\n\n");
  record.draft.answer_prefix = passkey ? "The pass key is" : "The sequence of digits is";
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> keyAndValue(const std::string& task, const JsonRecord& json,
                           const std::string& context) {
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  Record record = recordAbout(
      task, "Extract the value corresponding to the specified key in the JSON object below.\n\n",
      context, "\n\n" + input);
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> bookSummary(const std::string& task, const JsonRecord& json,
                           const std::string& context) {
  Record record = recordAbout(task, "Summarize the book below.\n\n", context, "\n\n");
  record.draft.answer_prefix = "Summary:";
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> bookChoice(const std::string& task, const JsonRecord& json,
                          const std::string& context) {
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  ALLOT_ASSIGN(const auto options, optionsOf(json));
  Record record = recordAbout(task, "Read the book and answer the question.\n\n", context,
                              "\n\nQuestion: " + input + listed(options) + "\n\n");
  record.draft.answer_prefix = "The letter of the correct answer is";
  ALLOT_ASSIGN(record.draft.answers, choiceOf(json, options));
  return record;
}

Result<Record> bookQuestion(const std::string& task, const JsonRecord& json,
                            const std::string& context) {
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  Record record = recordAbout(
      task, "Read the book and answer the question. Be very concise in your answer.\n\n", context,
      "\n\nQuestion: " + input + "\n");
  record.draft.answer_prefix = "Answer:";
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> maskedName(const std::string& task, const JsonRecord& json,
                          const std::string& context) {
  Record record = recordAbout(
      task,
      "Below is a dialogue script where one random occurrence of a character name is replaced with "
      "\"$$MASK$$\", and you should try to guess who that character is.\n\n",
      context, "\n\n");
  record.draft.answer_prefix = "The name that has been replaced with $$MASK$$ is likely";
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> numberOfList(const std::string& task, const JsonRecord& json,
                            const std::string& context) {
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  const std::string question = listQuestion(input);
  if (question.empty()) {
    return json.place().refuse("field \"input\" does not say \"The ... of\" what is asked for");
  }
  Record record = recordAbout(task, question + "\n\n", context, "\n\n" + input);
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> returnedValue(const std::string& task, const JsonRecord& json,
                             const std::string& context) {
  ALLOT_ASSIGN(const std::string input, json.text("input"));
  const std::string call = callIn(input);
  if (call.empty()) {
    return json.place().refuse("field \"input\" has no call such as func_1(2)");
  }
  Record record = recordAbout(task,
                              "There is a function called " + call.substr(0, call.find('(')) +
                                  " in the following Python code.\n\n",
                              context, "\n\nPlease compute the exact value of " + call + ". ");
  record.draft.answer_prefix = "The value of " + call + " is";
  ALLOT_ASSIGN(record.draft.answers, json.texts("answer"));
  return record;
}

Result<Record> brokenFunction(const std::string& task, const JsonRecord& json,
                              const std::string& context) {
  ALLOT_ASSIGN(const auto options, optionsOf(json));
  Record record = recordAbout(task,
                              "Following is a Python code where exactly one of the "
                              "functions/methods has a deliberate error "
                              "that makes it crash.\n\n",
                              context, "\n\nOptions:" + listed(options) + "\n\n");
  record.draft.answer_prefix = "The correct option is:";
  ALLOT_ASSIGN(record.draft.answers, choiceOf(json, options));
  return record;
}

struct TaskReader {
  std::string_view task;
  Reader read;
};
constexpr std::array<TaskReader, 10> kReaders = {{{"passkey", hiddenNumber},
                                                  {"number_string", hiddenNumber},
                                                  {"kv_retrieval", keyAndValue},
                                                  {"longbook_sum_eng", bookSummary},
                                                  {"longbook_choice_eng", bookChoice},
                                                  {"longbook_qa_eng", bookQuestion},
                                                  {"longdialogue_qa_eng", maskedName},
                                                  {"math_find", numberOfList},
                                                  {"code_run", returnedValue},
                                                  {"code_debug", brokenFunction}}};

Result<Record> infinitebenchRecord(const std::string& task, const JsonRecord& json) {
  ALLOT_ASSIGN(const std::string context, json.text("context"));
  const auto& reader = *std::find_if(kReaders.begin(), kReaders.end(),
                                     [&](const TaskReader& one) { return one.task == task; });
  return reader.read(task, json, context);
}

Result<std::vector<Record>> readInfinitebench(const std::string& path, const v1::Task& spec) {
  return readTaskFolder(path, spec, "infinitebench", infinitebenchRecord);
}

}  // namespace

Suite infinitebenchSuite() { return {.name = "infinitebench", .read = readInfinitebench}; }

}  // namespace allot
