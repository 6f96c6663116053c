// RULER, generated: every prompt is read back by a solver that knows the task's text alone, and is
// as long as it may be. And that the catalogue lists what the worker can do.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <regex>

#include "core/spec/task_catalogue.h"
#include "tests/results.h"
#include "tests/worker/datasets.h"
#include "worker/tasks/graders.h"
#include "worker/tasks/task.h"

namespace allot {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

constexpr int32_t kBos = 0;
const std::vector<std::string> kGenerated = {"niah_single_1",
                                             "niah_multikey_2",
                                             "niah_multikey_3",
                                             "niah_multivalue",
                                             "niah_multiquery",
                                             "vt",
                                             "cwe",
                                             "fwe"};

v1::Task spec(const std::vector<std::string>& tasks, uint32_t context_tokens, uint32_t train,
              uint32_t held_out, uint32_t max_new_tokens = 128) {
  return generatedTask("ruler", tasks, context_tokens, train, held_out, max_new_tokens);
}

// A template that adds words of its own, as a model's does.
Rendered rendered(const Draft& draft) {
  const std::string text = "<user> " + draft.prompt + " <assistant>" + draft.answer_prefix;
  std::vector<int32_t> ids = tokenizer().encode(text);
  ids.insert(ids.begin(), kBos);
  return {text, ids};
}

Result<Dataset> make(const v1::Task& task, uint64_t seed = 7) {
  return makeDataset(task, seed, tokenizer(), {.bos_token = kBos, .render = rendered});
}

// The words of the most counts, as many as asked for; a tie is a failure.
std::vector<std::string> mostCommon(const std::vector<std::string>& words, size_t count) {
  std::map<std::string, int> counts;
  for (const std::string& word : words) ++counts[word];
  std::vector<std::pair<int, std::string>> ranked;
  for (const auto& [word, n] : counts) ranked.emplace_back(-n, word);
  std::sort(ranked.begin(), ranked.end());
  EXPECT_GT(ranked.size(), count);
  EXPECT_LT(ranked[count - 1].first, ranked[count].first) << "a tie decides the answer";
  std::vector<std::string> top;
  for (size_t i = 0; i < count; ++i) top.push_back(ranked[i].second);
  return top;
}

std::vector<std::string> solveNiah(const std::string& prompt) {
  std::smatch m;
  EXPECT_TRUE(std::regex_search(
      prompt, m,
      std::regex("\nWhat (?:is|are all) the special magic (?:number|uuid)s? for (.*) "
                 "mentioned in the provided text\\?")));
  std::vector<std::string> values;
  for (const std::string& key : found(m[1], "([a-z]+-[a-z]+|[0-9a-f]+-[0-9a-f-]+)")) {
    for (std::string& value : found(prompt, "\nOne of the special magic (?:numbers|uuids) for " +
                                                key + " is: ([0-9a-f-]+)\\.")) {
      values.push_back(std::move(value));
    }
  }
  return values;
}

// Reads a prompt as a person would; knows nothing of the generator.
std::vector<std::string> solve(const std::string& task, const std::string& prompt) {
  if (task == "fwe") {
    const std::string mark = "appeared coded words.";
    const size_t from = prompt.find(mark) + mark.size();
    auto words = found(prompt.substr(from, prompt.find("\nQuestion: ") - from), " (\\S+)");
    std::erase(words, "...");
    return mostCommon(words, 3);
  }
  if (task == "cwe") {
    const size_t list = prompt.rfind("Memorize the ones that appear most often.\n");
    return mostCommon(found(prompt.substr(list), "\\d+\\. ([a-z-]+)"), 10);
  }
  if (task == "vt") {
    const size_t from = prompt.rfind("Memorize and track");
    const std::string text = prompt.substr(from);
    const auto value = found(text, "assigned the value (\\d+) in the text above");
    EXPECT_EQ(value.size(), 1U);
    std::vector<std::string> names = found(text, "VAR ([A-Z]+) = " + value[0] + "\n");
    EXPECT_EQ(names.size(), 1U);
    while (true) {
      const auto next = found(text, "VAR ([A-Z]+) = VAR " + names.back() + " \n");
      if (next.empty()) return names;
      names.push_back(next[0]);
    }
  }
  return solveNiah(prompt);
}

TEST(Ruler, EveryPromptHasItsAnswersAndFillsTheContext) {
  for (const uint32_t length : {1536U, 6000U}) {
    const v1::Task task = spec(kGenerated, length, 16, 32);
    const Dataset dataset = valueOf(make(task));
    for (const auto* split : {&dataset.train, &dataset.held_out}) {
      for (size_t i = 0; i < split->size(); ++i) {
        const Question& question = (*split)[i];
        SCOPED_TRACE(question.task + " " + std::to_string(length));
        EXPECT_EQ(question.task, kGenerated[i % kGenerated.size()]);
        EXPECT_THAT(question.answers,
                    UnorderedElementsAreArray(solve(question.task, question.prompt)));
        EXPECT_LE(question.prompt_ids.size() + 128, length);
        EXPECT_GE(question.prompt_ids.size() + 128, length * 95 / 100);
        EXPECT_EQ(question.prompt_ids.front(), kBos);
        std::string all = " ";
        for (const std::string& answer : question.answers) all += answer + ", ";
        EXPECT_EQ(grade(task, question, all).score, 1);
        EXPECT_EQ(grade(task, question, "").score, 0);
      }
    }
  }
}

// With RULER's own lengths of answers a prompt is as long as its task's leave room for: another
// unit of it, the longest of which is a line with two UUIDs, would be too much.
TEST(Ruler, WithItsOwnLengthsPromptsFillTheirRoom) {
  const std::map<std::string, uint32_t> lengths = {{"niah_single_1", 128},
                                                   {"niah_multikey_2", 128},
                                                   {"niah_multikey_3", 128},
                                                   {"niah_multivalue", 128},
                                                   {"niah_multiquery", 128},
                                                   {"vt", 30},
                                                   {"cwe", 120},
                                                   {"fwe", 50}};
  for (const uint32_t length : {1536U, 6000U}) {
    const v1::Task task = spec(kGenerated, length, 8, 16, 0);
    const Dataset dataset = valueOf(make(task));
    for (const Question& question : dataset.held_out) {
      SCOPED_TRACE(question.task + " " + std::to_string(length));
      EXPECT_EQ(question.own_answer_tokens, lengths.at(question.task));
      const size_t row = question.prompt_ids.size() + question.own_answer_tokens;
      EXPECT_LE(row, length);
      EXPECT_GE(row + 120, length);
      EXPECT_THAT(question.answers,
                  UnorderedElementsAreArray(solve(question.task, question.prompt)));
    }
    EXPECT_EQ(longestRow(task), length);
  }
}

TEST(Ruler, TheContextEndsWhereTheQuestionBegins) {
  const Dataset dataset = make(spec(kGenerated, 1536, 8, 8)).value();
  for (const Question& question : dataset.train) {
    const auto at = static_cast<std::ptrdiff_t>(question.context_tokens);
    const std::string before = tokenizer().decode(
        {question.prompt_ids.begin() + 1, question.prompt_ids.begin() + at}, false);
    const std::string rest = question.prompt.substr(before.size());
    ASSERT_EQ(question.prompt.substr(0, before.size()), before);
    // A token may straddle the border.
    EXPECT_THAT(rest.substr(0, 16), testing::AnyOf(HasSubstr("What "), HasSubstr("Question:")));
    EXPECT_LT(rest.size(), 900U) << rest;
  }
}

TEST(Ruler, FormsOfTheTasks) {
  const Dataset dataset = make(spec(kGenerated, 2048, 8, 1)).value();
  const auto prompt = [&](size_t i) { return dataset.train[i].prompt; };
  EXPECT_THAT(prompt(0), HasSubstr("A special magic number is hidden within the following text. "));
  EXPECT_TRUE(prompt(0).ends_with("mentioned in the provided text is"));
  EXPECT_THAT(prompt(3), HasSubstr("Some special magic numbers are hidden within"));
  EXPECT_TRUE(prompt(3).ends_with("mentioned in the provided text are"));
  EXPECT_EQ(dataset.train[3].answers.size(), 4U);
  EXPECT_THAT(dataset.train[2].answers[0],
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                    "[0-9a-f]{12}"));
  EXPECT_EQ(found(prompt(4), "(, and )").size(), 2U);              // question and answer prefix
  EXPECT_EQ(found(prompt(5), "(Memorize and track)").size(), 2U);  // the example and the question
  EXPECT_TRUE(prompt(5).ends_with(", they are: "));
  EXPECT_EQ(found(prompt(6), "(10 most common words)").size(), 2U);
}

TEST(Ruler, IsAFunctionOfSpecAndSeedOnEveryMachine) {
  const v1::Task task = spec(kGenerated, 1536, 8, 8);
  const std::string digest = datasetDigest(make(task).value());
  EXPECT_NE(digest, datasetDigest(make(task, 8).value()));
  // Pinned: workers of different builds must not mix their rewards unnoticed.
  EXPECT_EQ(digest, "82b2aca02f320549d8be6ca984509f43f3e8dab9ac8530e29cce8d7eeee8f92f");
  const Dataset more = make(spec(kGenerated, 1536, 24, 1)).value();
  const Dataset less = make(task).value();
  EXPECT_TRUE(std::equal(less.train.begin(), less.train.end(), more.train.begin(),
                         [](const auto& a, const auto& b) { return a.prompt == b.prompt; }));
}

TEST(Ruler, WhatDoesNotFitIsRefusedWithALengthThatDoes) {
  for (const std::string& task : kGenerated) {
    uint32_t length = 140;
    int refusals = 0;
    for (; refusals < 8; ++refusals) {
      const Result<Dataset> made = make(spec({task}, length, 10, 10));
      if (made) break;
      EXPECT_THAT(made.error().message,
                  HasSubstr("spec.task.contextTokens: no " + task + " question fits in " +
                            std::to_string(length) + " tokens, 128 of them the answer's; "));
      ASSERT_GT(advised(made.error().message), length) << made.error().message;
      length = advised(made.error().message);
    }
    EXPECT_GT(refusals, 0) << task;
    EXPECT_LT(refusals, 8) << task;
  }
  EXPECT_THAT(make(spec({"cwe"}, 4096, 1, 1, 8)),
              isError(HasSubstr("spec.task.maxNewTokens: no cwe answer fits in 8")));
  EXPECT_FALSE(make(spec({"niah_single_1"}, 100, 1, 1, 128)));
}

TEST(Ruler, BothGradersAreRecorded) {
  v1::Task task = spec({"fwe", "vt", "niah_multivalue", "qa_1"}, 4096, 1, 1);
  const Question fwe{"fwe", "", {}, {"abcdef", "ghijkl", "mnopqr"}};
  // RULER looks for substrings, SANTA for words.
  const std::string joined = "abcdefghijkl mnopqr";
  EXPECT_EQ(grade(task, fwe, joined).score, 1);
  EXPECT_NEAR(grade(task, fwe, joined).other.value(), 1.0 / 3, 1e-12);
  task.set_grader("santa");
  EXPECT_NEAR(grade(task, fwe, joined).score, 1.0 / 3, 1e-12);
  EXPECT_EQ(grade(task, fwe, joined).other.value(), 1);
  task.set_grader("santa-fwe");
  EXPECT_NEAR(grade(task, fwe, joined).score, 1.0 / 3, 1e-12);
  EXPECT_EQ(grade(task, fwe, joined).other.value(), 1);
  task.set_grader("ruler-all");
  EXPECT_EQ(grade(task, fwe, joined).score, 1);
  EXPECT_TRUE(grade(task, fwe, joined).other);
  task.clear_grader();
  EXPECT_FALSE(grade(task, {"vt", "", {}, {"ABCDE"}}, "ABCDE").other);
  const Question qa{"qa_1", "", {}, {"France", "french republic"}};
  EXPECT_EQ(grade(task, qa, "the French Republic").score, 1);
  EXPECT_EQ(grade(task, qa, "the French Republic").other.value(), 0);
  EXPECT_FALSE(isComplete(task, "abcdef\n"));
}

TEST(Catalogue, ListsExactlyWhatTheWorkerCanDo) {
  for (const SuiteInfo& info : suiteCatalogue()) {
    const Suite* suite = findSuite(info.name);
    ASSERT_NE(suite, nullptr) << info.name;
    EXPECT_EQ(suite->read == nullptr, info.path == TaskPath::kNever) << info.name;
    EXPECT_EQ(suite->draft == nullptr, info.path == TaskPath::kRequired) << info.name;
    std::vector<std::string> generated;
    for (const TaskInfo& task : info.tasks) {
      if (info.path != TaskPath::kRequired && !task.needs_path) generated.emplace_back(task.name);
      // Those whose answers are run have no function of answers and text.
      EXPECT_EQ(findGrader(task.grader) == nullptr, runsCode(task.grader)) << task.name;
      if (!task.other_grader.empty()) {
        EXPECT_NE(findGrader(task.other_grader), nullptr) << task.name;
      }
    }
    EXPECT_EQ(suite->generated, generated) << info.name;
  }
  std::vector<std::string> graders;
  for (const GraderInfo& grader : graderCatalogue()) graders.emplace_back(grader.name);
  EXPECT_EQ(implementedGraders(), graders);
  EXPECT_EQ(findGrader("nonsense"), nullptr);
  EXPECT_EQ(findSuite("nonsense"), nullptr);
}

}  // namespace
}  // namespace allot
