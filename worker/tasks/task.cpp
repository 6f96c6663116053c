#include "worker/tasks/task.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "core/digest.h"
#include "core/spec/choices.h"
#include "core/spec/task_catalogue.h"
#include "core/words.h"
#include "worker/tasks/answer_text.h"
#include "worker/tasks/generated_dataset.h"
#include "worker/tasks/graders.h"
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/python_random.h"
#include "worker/tasks/python_tests.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// Returns the text in lower case (ASCII), with single spaces for runs of blanks, trimmed.
std::string normalised(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (!plain.empty() && plain.back() != ' ') plain += ' ';
    } else {
      plain += asciiLower(c);
    }
  }
  if (plain.ends_with(' ')) plain.pop_back();
  return plain;
}

// Selects half of all questions, by the digest of their identity.
bool fallsToTraining(const std::string& digest) {
  return std::string_view("02468ace").find(digest[0]) != std::string_view::npos;
}

// The questions of one task on one side, each once.
struct Pool {
  std::vector<const Draft*> drafts;
  size_t in_training_file = 0;  // left out: the file of training questions has them
};

using Pools = std::map<std::string, Pool>;  // by task

class FileDataset {
 public:
  FileDataset(const v1::Task& spec, const Suite& suite, uint64_t seed, const PromptTokens& tokens)
      : spec_(spec), suite_(suite), seed_(seed), tokens_(tokens) {}

  Result<Dataset> make(const std::string& path, const std::string& held_out_path) {
    ALLOT_ASSIGN(const std::vector<Record> records, read("spec.task.path", path));
    std::vector<Record> others;
    Pools train, held_out;
    if (held_out_path.empty() && spec_.train_questions() == 0) {
      for (const Record& record : records) add(record, &held_out);
    } else if (held_out_path.empty()) {
      for (const Record& record : records) {
        const std::string digest = sha256Hex(normalised(record.identity));
        add(record, fallsToTraining(digest) ? &train : &held_out);
      }
    } else {
      ALLOT_ASSIGN(others, read("spec.task.heldOutPath", held_out_path));
      std::set<std::string> known;
      for (const Record& record : records) {
        known.insert(normalised(record.identity));
        add(record, &train);
      }
      for (const Record& record : others) {
        if (known.contains(normalised(record.identity))) {
          ++held_out[record.task].in_training_file;
        } else {
          add(record, &held_out);
        }
      }
    }
    Dataset dataset;
    ALLOT_ASSIGN(dataset.train, choose(train, Split::kTrain, path));
    ALLOT_ASSIGN(dataset.held_out,
                 choose(held_out, Split::kHeldOut, held_out_path.empty() ? path : held_out_path));
    return dataset;
  }

 private:
  Result<std::vector<Record>> read(const char* key, const std::string& path) {
    auto records = suite_.read(path, spec_);
    if (records || records.error().code != ErrorCode::kUsage) return records;
    std::string message = std::string(key) + ": " + records.error().message;
    if (path.ends_with(".csv") && message.find(": is not JSON") != std::string::npos) {
      message += "; suite " + suite_.name + " reads JSON lines, CSV is for suite mmlu";
    }
    return badInput(message);
  }

  // Adds the record's draft, unless a record of an equal prompt was added before, to either side.
  void add(const Record& record, Pools* pools) {
    const std::string prompt = record.task + "\n" + normalised(record.draft.prompt);
    if (seen_.insert(sha256Hex(prompt)).second) {
      (*pools)[record.task].drafts.push_back(&record.draft);
    }
  }

  // Chooses questions of all tasks in turn.
  Result<std::vector<Question>> choose(const Pools& pools, Split split, const std::string& file) {
    const uint32_t count =
        split == Split::kTrain ? trainingQuestions(spec_) : spec_.held_out_questions();
    const auto tasks = static_cast<uint32_t>(spec_.tasks_size());
    if (tasks == 0) return badInput("spec.task.tasks: is empty");
    std::vector<std::vector<Question>> chosen;
    for (uint32_t t = 0; t < tasks; ++t) {
      const uint32_t share = count / tasks + (t < count % tasks ? 1 : 0);
      const std::string& task = spec_.tasks(static_cast<int>(t));
      const auto found = pools.find(task);
      const Pool pool = found == pools.end() ? Pool() : found->second;
      ALLOT_ASSIGN(auto some, chooseOf(task, pool, split, share, file));
      chosen.push_back(std::move(some));
    }
    std::vector<Question> questions;
    for (uint32_t i = 0; i < count; ++i) {
      questions.push_back(std::move(chosen[i % tasks][i / tasks]));
    }
    return questions;
  }

  Result<std::vector<Question>> chooseOf(const std::string& task, const Pool& pool, Split split,
                                         uint32_t share, const std::string& file) {
    std::vector<const Draft*> order = pool.drafts;
    PythonRandom(generatorSeed(seed_, split, 0, 0)).shuffle(order);
    const uint64_t answer = suite_.context_holds_answer ? longestAnswer(spec_, task) : 0;
    const uint64_t limit = spec_.context_tokens() > answer ? spec_.context_tokens() - answer : 0;
    std::vector<Question> questions;
    size_t too_long = 0, shortest = SIZE_MAX;
    for (const Draft* draft : order) {
      if (questions.size() == share) break;
      Question question = tokens_.makeCut(task, *draft, limit);
      if (question.prompt_ids.size() <= limit) {
        questions.push_back(std::move(question));
      } else {
        ++too_long;
        shortest = std::min(shortest, question.prompt_ids.size());
      }
    }
    if (questions.size() == share) return questions;
    const bool train = split == Split::kTrain;
    const char* keys = !train                           ? "heldOutQuestions"
                       : spec_.confirm_questions() == 0 ? "trainQuestions"
                                                        : "trainQuestions and confirmQuestions";
    std::string message = std::string("spec.task.") + keys + ": " + file + " has " +
                          std::to_string(questions.size()) + " of the " + std::to_string(share) +
                          (spec_.tasks_size() > 1 ? " " + task : "") +
                          " questions asked for: " + std::to_string(pool.drafts.size()) +
                          " different ones are for " + (train ? "training" : "evaluation");
    if (pool.in_training_file > 0) {
      message += " (" + std::to_string(pool.in_training_file) +
                 " more are in the file of the training questions, too)";
    }
    if (too_long > 0) {
      message += ", " + std::to_string(too_long) +
                 " of them do not fit spec.task.contextTokens, the shortest of which takes " +
                 std::to_string(shortest + answer);
    }
    return badInput(message + "; ask for fewer or give a larger file");
  }

  const v1::Task& spec_;
  const Suite& suite_;
  uint64_t seed_;
  const PromptTokens& tokens_;
  std::set<std::string> seen_;
};

// Builds both sides. Errors (kUsage): a fault of the file, or how many questions a side lacks.
Result<Dataset> readDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                            const PromptTokens& tokens, const DatasetOptions& options) {
  const auto placed = [](const std::string& at, const std::string& named) {
    return at.empty() ? named : at;
  };
  const std::string path = placed(options.path, spec.path());
  if (suite.read == nullptr || path.empty()) {
    return badInput("spec.task.path: suite " + suite.name +
                    (suite.read == nullptr ? " reads no file; remove the key"
                                           : " needs the file with its questions"));
  }
  return FileDataset(spec, suite, seed, tokens)
      .make(path, placed(options.held_out_path, spec.held_out_path()));
}

const std::vector<Suite>& suites() {
#define ALLOT_CALL_SUITE(function) function(),
  static const std::vector<Suite> all = {ALLOT_SUITES(ALLOT_CALL_SUITE)};
#undef ALLOT_CALL_SUITE
  return all;
}

constexpr uint64_t kMaxContextTokens = uint64_t{1} << 20;
constexpr uint64_t kMaxDatasetTokens = uint64_t{1} << 28;

Status checkSpec(const v1::Task& spec, const Suite& suite) {
  const std::vector<std::string> known = spec.path().empty() && suite.draft != nullptr
                                             ? suite.generated
                                             : findSuiteInfo(suite.name)->taskNames();
  const std::string allowed = "; allowed for suite " + suite.name + ": " + joined(known);
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
  const uint64_t questions = uint64_t{trainingQuestions(spec)} + spec.held_out_questions();
  if (questions > kMaxDatasetTokens / length) {
    return badInput("spec.task: " + std::to_string(questions) + " questions of " +
                    std::to_string(length) +
                    " tokens are too many; trainQuestions, confirmQuestions " +
                    "and heldOutQuestions together may be at most " +
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
                    "\" is not known; allowed: " + joined(suiteNames()));
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
  std::vector<TestProgram> programs;
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
