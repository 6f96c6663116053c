#include "worker/tasks/task.h"

#include <algorithm>
#include <string_view>

#include "core/digest.h"
#include "core/spec/task_catalogue.h"
#include "worker/tasks/file_dataset.h"
#include "worker/tasks/generated_dataset.h"
#include "worker/tasks/graders.h"
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/python_tests.h"
#include "worker/tasks/suites.h"

namespace allot {
namespace {

// The registry: one entry a suite.
const std::vector<Suite>& suites() {
#define ALLOT_CALL_SUITE(function) function(),
  static const std::vector<Suite> all = {ALLOT_SUITES(ALLOT_CALL_SUITE)};
#undef ALLOT_CALL_SUITE
  return all;
}

constexpr uint64_t kMaxContextTokens = uint64_t{1} << 20;
constexpr uint64_t kMaxDatasetTokens = uint64_t{1} << 28;

std::string quotedList(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Status checkSpec(const v1::Task& spec, const Suite& suite) {
  const std::vector<std::string> known = spec.path().empty() && suite.draft != nullptr
                                             ? suite.generated
                                             : findSuiteInfo(suite.name)->taskNames();
  const std::string allowed = "; allowed for suite " + suite.name + ": " + quotedList(known);
  if (spec.tasks_size() == 0) return badInput("spec.task.tasks: is empty" + allowed);
  for (int i = 0; i < spec.tasks_size(); ++i) {
    if (std::find(known.begin(), known.end(), spec.tasks(i)) == known.end()) {
      return badInput("spec.task.tasks[" + std::to_string(i) + "]: \"" + spec.tasks(i) +
                      "\" is not known" + allowed);
    }
  }
  const uint64_t length = spec.context_tokens();
  if (length < 1 || length > kMaxContextTokens) {
    return badInput("spec.task.contextTokens: " + std::to_string(length) + " is out of range 1.." +
                    std::to_string(kMaxContextTokens));
  }
  const uint64_t questions = uint64_t{spec.train_questions()} + spec.held_out_questions();
  if (questions > kMaxDatasetTokens / length) {
    return badInput("spec.task: " + std::to_string(questions) + " questions of " +
                    std::to_string(length) + " tokens are too many; trainQuestions plus " +
                    "heldOutQuestions may be at most " +
                    std::to_string(kMaxDatasetTokens / length) + " at this contextTokens");
  }
  return {};
}

void appendSized(std::string& bytes, std::string_view field) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>(static_cast<uint64_t>(field.size()) >> shift & 0xffU);
  }
  bytes += field;
}

}  // namespace

const Suite* findSuite(std::string_view name) {
  for (const Suite& suite : suites()) {
    if (suite.name == name) return &suite;
  }
  return nullptr;
}

Result<Dataset> makeDataset(const v1::Task& task, uint64_t seed, const Tokenizer& tokenizer,
                            const DatasetOptions& options) {
  const Suite* suite = findSuite(task.suite());
  if (suite == nullptr) {
    return badInput("spec.task.suite: \"" + task.suite() +
                    "\" is not known; allowed: " + quotedList(suiteNames()));
  }
  ALLOT_TRY(checkSpec(task, *suite));
  const PromptTokens tokens(task, tokenizer, options);
  if (task.path().empty() && suite->draft != nullptr) {
    return generateDataset(task, *suite, seed, tokens);
  }
  return readDataset(task, *suite, seed, tokens, options);
}

uint64_t longestRow(const v1::Task& task) {
  const Suite* suite = findSuite(task.suite());
  if (suite != nullptr && suite->context_holds_answer) return task.context_tokens();
  uint32_t answer = 0;
  for (const std::string& name : task.tasks()) answer = std::max(answer, longestAnswer(task, name));
  return uint64_t{task.context_tokens()} + answer;
}

Grades grade(const v1::Task& task, const Question& question, const std::string& completion) {
  const TaskGraders names = gradersOf(task, question.task);
  const Expected expected{question.answers, question.classes};
  Grades grades;
  if (const Grader grader = findGrader(names.score)) {
    grades.score = grader(expected, completion);
  }
  if (const Grader other = findGrader(names.other)) {
    grades.other = other(expected, completion);
  }
  return grades;
}

Status mayRunCode(const v1::Task& task, bool allowed) {
  if (allowed || !runsCode(task)) return {};
  return badInput("spec.task: suite " + task.suite() +
                  " with its grader runs programs that the model writes: --allow-code-execution "
                  "(of `allot run` "
                  "or allot-worker) lets workers do so, in a sandbox without network and files");
}

Result<std::vector<Grades>> gradeAll(const v1::Task& task, std::span<const Completion> completions,
                                     const std::function<Status()>& go_on) {
  std::vector<Grades> all;
  std::vector<std::string> programs;
  std::vector<size_t> of;  // the completion of each program
  for (size_t i = 0; i < completions.size(); ++i) {
    const auto& [question, text] = completions[i];
    all.push_back(grade(task, *question, *text));
    if (!runsCode(gradersOf(task, question->task).score)) continue;
    programs.push_back(testProgram(question->answers, *text));
    of.push_back(i);
  }
  if (programs.empty()) return all;
  ALLOT_ASSIGN(const auto scores, runPrograms(programs, go_on));
  for (size_t i = 0; i < of.size(); ++i) all[of[i]].score = scores[i];
  return all;
}

std::vector<v1::GraderReading> readings(const v1::Task& task, const Question& question,
                                        const std::string& completion) {
  const TaskGraders names = gradersOf(task, question.task);
  std::vector<v1::GraderReading> all;
  for (const std::string& name : {names.score, names.other}) {
    if (name.empty()) continue;
    v1::GraderReading& reading = all.emplace_back();
    reading.set_grader(name);
    const auto taken = extractedAnswer(name, completion);
    reading.set_whole(!taken);
    if (taken) reading.set_taken(*taken);
  }
  return all;
}

bool isComplete(const v1::Task& task, const std::string& completion) {
  const Suite* suite = findSuite(task.suite());
  return suite != nullptr && suite->complete != nullptr && suite->complete(completion);
}

std::string datasetDigest(const Dataset& dataset) {
  std::string bytes, counts, lengths, classes;
  for (const std::vector<Question>* split : {&dataset.train, &dataset.held_out}) {
    appendSized(bytes, std::to_string(split->size()));
    for (const Question& question : *split) {
      appendSized(bytes, question.prompt);
      for (const std::string& answer : question.answers) appendSized(bytes, answer);
      counts += std::to_string(question.answers.size()) + " ";
      for (const std::string& one : question.classes) appendSized(classes, one);
      if (question.own_answer_tokens == 0) continue;
      lengths += std::to_string(question.own_answer_tokens) + " ";
    }
  }
  // Most questions have one answer; the digest needs no more then.
  if (counts.find_first_not_of("1 ") != std::string::npos) appendSized(bytes, counts);
  if (!classes.empty()) appendSized(bytes, "classes " + classes);
  if (!lengths.empty()) appendSized(bytes, "answers of " + lengths);
  return sha256Hex(bytes);
}

}  // namespace allot
