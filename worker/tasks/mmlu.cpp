// Suite mmlu: exam questions with four choices (Hendrycks et al. 2021), as the published CSV
// (question,A,B,C,D,answer without a header), a folder of such files, the folder of the published
// archive with test/ and val/ in it, or JSON lines with `question`, `choices` and `answer`.
// Prompts: the SANTA paper, Appendix O, which asks the 1531 questions of val/.
#include <algorithm>
#include <filesystem>

#include "core/spec/choices.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

constexpr const char* kMmluSystem =
    "You are a knowledgeable and concise subject-matter expert. Work through the problem step by "
    "step. Finally, on a new line, output ONLY the single capital letter (A, B, C, or D) that "
    "corresponds to the correct choice.";
constexpr const char* kMmluSuffix =
    "\n\nAnswer briefly. Put your final answer as a single letter inside \\boxed{}.";
constexpr std::string_view kLetters = "ABCD";

Record recordOf(const std::string& question, const std::vector<std::string>& choices, char answer,
                bool deepseek) {
  Record record{.task = "mmlu", .draft = {}, .identity = question};
  std::string& prompt = record.draft.prompt;
  prompt = trimmed(question) + "\n";
  for (size_t i = 0; i < choices.size(); ++i) {
    prompt.append("\n").append(1, kLetters[i]).append(". ").append(trimmed(choices[i]));
  }
  if (deepseek) prompt += kMmluSuffix;
  if (!deepseek) record.draft.system = kMmluSystem;
  record.draft.answers = {std::string(1, answer)};
  return record;
}

Result<char> letterOf(const RecordPlace& place, const std::string& text) {
  const std::string letter = trimmed(text);
  if (letter.size() != 1 || kLetters.find(letter[0]) == std::string_view::npos) {
    return place.refuse("its answer is not one of A, B, C, D");
  }
  return letter[0];
}

// Returns the letter of an answer, which is 0..3 or the letter.
Result<char> answerOf(const JsonRecord& json) {
  ALLOT_ASSIGN(const nlohmann::json* answer, json.value("answer"));
  if (answer->is_string()) return letterOf(json.place(), answer->get<std::string>());
  if (!answer->is_number_integer() || *answer < 0 || *answer > 3) {
    return json.place().refuse("field \"answer\" is neither 0..3 nor a letter A..D");
  }
  return kLetters[answer->get<size_t>()];
}

Status readOne(const std::string& file, bool deepseek, std::vector<Record>* records) {
  if (file.ends_with(".csv")) {
    return readCsv(file, 6,
                   [&](const RecordPlace& place, const std::vector<std::string>& row) -> Status {
                     if (trimmed(row[0]).empty()) return place.refuse("its question is blank");
                     ALLOT_ASSIGN(const char answer, letterOf(place, row[5]));
                     records->push_back(
                         recordOf(row[0], {row.begin() + 1, row.begin() + 5}, answer, deepseek));
                     return {};
                   });
  }
  return readJson(file, [&](const JsonRecord& json) -> Status {
    ALLOT_ASSIGN(const std::string question, json.text("question"));
    ALLOT_ASSIGN(const auto choices, json.texts("choices", true));
    if (choices.size() != kLetters.size()) {
      return json.place().refuse("field \"choices\" has " + std::to_string(choices.size()) +
                                 " entries instead of 4");
    }
    ALLOT_ASSIGN(const char answer, answerOf(json));
    records->push_back(recordOf(question, choices, answer, deepseek));
    return {};
  });
}

namespace fs = std::filesystem;

// Returns the files of questions in a folder, in the order of their names, without sub-folders.
std::vector<std::string> questionFiles(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".csv") || name.ends_with(".jsonl")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the files to read: `path` itself, or the files of a folder. With `split` validation these
// are those of its val/ or validation/, else its own or, without any, those of its test/.
Result<std::vector<std::string>> filesOf(const std::string& path, TaskSplit split) {
  std::error_code failed;
  const bool folder = fs::is_directory(path, failed);
  if (split == TaskSplit::kTest) {
    if (!folder) return std::vector{path};
    if (auto files = questionFiles(path); !files.empty()) return files;
    if (auto files = questionFiles(path + "/test"); !files.empty()) return files;
    return badInput(path + ": has no file *.csv or *.jsonl, nor a folder test with some");
  }
  const std::string asked = "spec.task.split is validation";
  if (!folder) {
    return badInput(path + ": is no folder, and " + asked +
                    ": name the folder that has val in it, or remove that key");
  }
  for (const char* const name : {"/val", "/validation"}) {
    if (auto files = questionFiles(path + name); !files.empty()) return files;
  }
  return badInput(path + ": has no folder val or validation with *.csv or *.jsonl in it, and " +
                  asked);
}

Result<std::vector<Record>> readMmlu(const std::string& path, const v1::Task& spec) {
  ALLOT_ASSIGN(const auto files, filesOf(path, splitOf(spec)));
  std::vector<Record> records;
  for (const std::string& file : files) {
    ALLOT_TRY(readOne(file, promptStyleOf(spec) == PromptStyle::kDeepseek, &records));
  }
  return records;
}

}  // namespace

Suite mmluSuite() { return {.name = "mmlu", .read = readMmlu}; }

}  // namespace allot
