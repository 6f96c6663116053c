// Datasets: that they fit, that their answers are right, and what is said when nothing fits.
#include "worker/tasks/task.h"
#include "core/spec/spec_rules.h"
#include "core/spec/task_catalogue.h"
#include "tests/results.h"
#include "tests/worker/datasets.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace allot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int32_t kBos = 0;
const std::vector<std::string> kTasks = {"niah", "multi", "hop",
                                         "qa",   "track", "freq"};  // any order

v1::Task spec(const std::vector<std::string>& tasks, uint32_t context_tokens, uint32_t train,
              uint32_t held_out, uint32_t max_new_tokens = 24) {
  return generatedTask("recall", tasks, context_tokens, train, held_out, max_new_tokens);
}

Result<Dataset> make(const v1::Task& task, uint64_t seed = 7) {
  return makeDataset(task, seed, tokenizer(), {.bos_token = kBos});
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
  return text;
}

std::string mostCommon(const std::string& context) {
  std::map<std::string, int> counts;
  for (const std::string& word : found(context.substr(6), "([a-z]+)")) ++counts[word];
  std::multimap<int, std::string, std::greater<>> ranked;
  for (const auto& [word, count] : counts) ranked.emplace(count, word);
  std::vector<std::string> top;
  for (auto it = ranked.begin(); top.size() < 3; ++it) {
    EXPECT_EQ(ranked.count(it->first), 1U) << "a tie decides the answer";
    top.push_back(it->second);
  }
  return join(top);
}

// Reads the context as a person would; knows nothing of the generator.
std::string solve(const std::string& prompt) {
  const size_t mark = prompt.find("\nQuestion: ");
  const std::string context = prompt.substr(0, mark);
  const std::string question = prompt.substr(mark + 1);
  std::smatch m;
  const auto asks = [&](const char* text) {
    return std::regex_match(question, m, std::regex("Question: " + std::string(text) + " Answer:"));
  };
  const auto boss = [&](const std::string& name) {
    return join(found(context, name + " works for (\\w+)\\."));
  };
  const auto city = [&](const std::string& name) {
    return join(found(context, name + " lives in (\\w+)\\."));
  };
  const auto job = [&](const std::string& name) {
    return join(found(context, name + " is a (\\w+)\\."));
  };
  if (asks("What is the code for (.*)\\?") || asks("List all codes for (.*) in order\\.")) {
    return join(found(context, "The code for " + m[1].str() + " is (\\d+)\\."));
  }
  if (asks("In which city does the boss of (.*) live\\?")) return city(boss(m[1]));
  if (asks("Where does (.*) live\\?")) return city(m[1]);
  if (asks("What is the job of the boss of (.*)\\?")) return job(boss(m[1]));
  if (asks("What is the job of (.*)\\?")) return job(m[1]);
  if (asks("What is the value of (.*)\\?")) {
    std::string name = m[1];
    for (auto from = found(context, "Copy (\\w+) to " + name + "\\."); !from.empty();
         from = found(context, "Copy (\\w+) to " + name + "\\.")) {
      name = from[0];
    }
    return join(found(context, "Set " + name + " to (\\d+)\\."));
  }
  if (asks("Which three words are most common\\?")) return mostCommon(context);
  return "no such question";
}

TEST(Dataset, EveryQuestionFitsAndHasTheRightAnswer) {
  for (uint32_t length : {256U, 512U, 1024U}) {
    const v1::Task task = spec(kTasks, length, 60, 90);
    const Dataset dataset = valueOf(make(task));
    ASSERT_EQ(dataset.train.size(), 60U);
    ASSERT_EQ(dataset.held_out.size(), 90U);
    std::map<std::string, double> tokens;
    for (const auto* split : {&dataset.train, &dataset.held_out}) {
      for (size_t i = 0; i < split->size(); ++i) {
        const Question& question = (*split)[i];
        EXPECT_EQ(question.task, kTasks[i % kTasks.size()]);
        ASSERT_EQ(question.answers.size(), 1U);
        const std::string& answer = question.answers[0];
        EXPECT_EQ(solve(question.prompt), answer) << question.prompt;
        EXPECT_LE(question.prompt_ids.size(), length);
        EXPECT_EQ(question.prompt_ids.front(), kBos);
        EXPECT_EQ(std::vector<int32_t>(question.prompt_ids.begin() + 1, question.prompt_ids.end()),
                  tokenizer().encode(question.prompt));
        EXPECT_LE(tokenizer().encode(" " + answer + "\n").size(), 24U);
        EXPECT_EQ(grade(task, question, " " + answer + "\n").score, 1);
        EXPECT_EQ(grade(task, question, " " + answer + "x\n").score, 0);
        const auto context = static_cast<std::ptrdiff_t>(question.context_tokens);
        const std::string before = tokenizer().decode(
            {question.prompt_ids.begin(), question.prompt_ids.begin() + context});
        EXPECT_NEAR(static_cast<double>(before.size()),
                    static_cast<double>(question.prompt.find("Question: ")), 3);
        tokens[question.task] += static_cast<double>(question.prompt_ids.size());
      }
    }
    for (const auto& [task, sum] : tokens) EXPECT_GE(sum / 25, 0.9 * length) << task;
  }
}

TEST(Dataset, SplitsAndSeedsShareNoContext) {
  std::set<std::string> contexts;
  size_t questions = 0;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{7}, UINT64_MAX}) {
    const Dataset dataset = valueOf(make(spec(kTasks, 200, 30, 30), seed));
    for (const auto* split : {&dataset.train, &dataset.held_out}) {
      for (const Question& question : *split) {
        contexts.insert(question.prompt.substr(0, question.prompt.find('\n')));
        ++questions;
      }
    }
  }
  EXPECT_EQ(contexts.size(), questions);
}

TEST(Dataset, IsAFunctionOfSpecAndSeedOnEveryMachine) {
  const v1::Task task = spec({"niah", "multi", "track", "freq"}, 512, 16, 32);
  const std::string digest = datasetDigest(make(task).value());
  EXPECT_EQ(digest, datasetDigest(make(task).value()));
  EXPECT_NE(digest, datasetDigest(make(task, 8).value()));
  // Pinned: workers of different builds must not mix their rewards unnoticed.
  EXPECT_EQ(digest, "d0af1c8f86fde829e4d633db77b68383332891c178d1b09c5358428ebaa4e673");
  // A question depends on its own number, not on how many there are.
  const Dataset more = make(spec({"niah", "multi", "track", "freq"}, 512, 40, 1)).value();
  const Dataset less = make(task).value();
  EXPECT_TRUE(std::equal(less.train.begin(), less.train.end(), more.train.begin(),
                         [](const auto& a, const auto& b) { return a.prompt == b.prompt; }));
}

TEST(Dataset, DigestSeesWhereAFieldEndsAndWhichSplitItIsIn) {
  const auto digest = [](std::vector<Question> train, std::vector<Question> held_out) {
    return datasetDigest({std::move(train), std::move(held_out)});
  };
  const Question a{"niah", "ab", {}, {"c"}};
  const Question b{"niah", "a", {}, {"bc"}};
  const Question two{"niah", "a", {}, {"b", "c"}}, three{"niah", "a", {}, {"b", "c", "bc"}};
  std::set<std::string> all = {digest({a}, {}),    digest({b}, {}),    digest({}, {a}),
                               digest({a, b}, {}), digest({a}, {b}),   digest({b, a}, {}),
                               digest({}, {}),     digest({}, {a, b}), digest({two}, {}),
                               digest({three}, {})};
  EXPECT_EQ(all.size(), 10U);
  EXPECT_EQ(all.begin()->size(), 64U);
}

TEST(Dataset, NoBosTokenAndEmptySplits) {
  const Dataset dataset = valueOf(makeDataset(spec({"qa"}, 256, 0, 2), 7, tokenizer(), {}));
  EXPECT_TRUE(dataset.train.empty());
  EXPECT_EQ(dataset.held_out[0].prompt_ids, tokenizer().encode(dataset.held_out[0].prompt));
}

TEST(DatasetErrors, TooShortAContextNamesOneThatWillDo) {
  const Result<Dataset> refused = make(spec({"niah"}, 16, 4, 4));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_TRUE(std::regex_match(
      refused.error().message,
      std::regex("spec\\.task\\.contextTokens: no niah question fits in 16 tokens; the shortest "
                 "of 200 tried needs \\d+: set it to at least \\d+")))
      << refused.error().message;
  EXPECT_THAT(make(spec({"niah"}, advised(refused.error().message), 100, 100)), succeeds());
}

TEST(DatasetErrors, AdviceIsFollowedToAnEndForEveryTask) {
  for (const std::string& task : kTasks) {
    uint32_t length = 1;
    int refusals = 0;
    for (; refusals < 10; ++refusals) {
      const Result<Dataset> made = make(spec({task}, length, 30, 30));
      if (made) break;
      EXPECT_THAT(made.error().message,
                  StartsWith("spec.task.contextTokens: no " + task + " question fits in " +
                             std::to_string(length) + " tokens; "));
      ASSERT_GT(advised(made.error().message), length);
      length = advised(made.error().message);
    }
    EXPECT_GT(refusals, 0) << task;
    EXPECT_LE(refusals, task == "freq" ? 7 : 1) << task;
    EXPECT_LE(length, 160U) << task;
  }
}

TEST(DatasetErrors, TooFewNewTokensNamesAsManyAsWillDo) {
  for (uint32_t few : {0U, 2U}) {
    const Result<Dataset> refused = make(spec({"multi"}, 256, 4, 4, few));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    EXPECT_THAT(refused.error().message, StartsWith("spec.task.maxNewTokens: no multi answer "));
    const uint32_t enough = advised(refused.error().message);
    EXPECT_THAT(make(spec({"multi"}, 256, 50, 50, enough)), succeeds());
  }
}

TEST(DatasetErrors, SpecsThatNoOneCanMeet) {
  const auto refusal = [](const v1::Task& task) { return messageOf(make(task)); };
  v1::Task other = spec({"niah"}, 256, 1, 1);
  other.set_suite("rular");
  EXPECT_EQ(refusal(other),
            "spec.task.suite: \"rular\" is not known; allowed: " + joined(suiteNames()));
  EXPECT_EQ(refusal(spec({"niah", "Niah"}, 256, 1, 1)),
            "spec.task.tasks[1]: \"Niah\" is not known; allowed for suite recall: "
            "niah, multi, track, freq, qa, hop");
  EXPECT_THAT(refusal(spec({}, 256, 1, 1)), StartsWith("spec.task.tasks: is empty"));
  EXPECT_THAT(refusal(spec({"niah"}, 0, 1, 1)), HasSubstr("contextTokens: 0 is out of range"));
  EXPECT_THAT(refusal(spec({"niah"}, UINT32_MAX, 1, 1)), HasSubstr("is out of range 1..1048576"));
  EXPECT_THAT(refusal(spec({"niah"}, 512, UINT32_MAX, UINT32_MAX)), HasSubstr("are too many"));
}

TEST(Grading, GoesByTheSpecAndTheQuestionsTask) {
  v1::Task task = spec({"freq"}, 512, 1, 1);
  const Question question{"freq", "", {}, {"fa go li"}};
  EXPECT_EQ(grade(task, question, " fa go li\nmore").score, 1);
  EXPECT_EQ(grade(task, question, " go fa li\n").score, 0);
  EXPECT_FALSE(grade(task, question, "").other);
  EXPECT_FALSE(isComplete(task, " fa go li"));
  EXPECT_TRUE(isComplete(task, " fa go li\n"));
  task.set_grader("contains-any");
  EXPECT_EQ(grade(task, question, "x fa go li y").score, 1);
}

}  // namespace
}  // namespace allot
