#include "worker/tasks/task.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/digest.h"
#include "worker/tasks/recall.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// The registry: one line a suite.
const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {recallSuite()};
  return all;
}

constexpr int kSeedsPerQuestion = 200;
constexpr int kLengthsPerSeed = 5;
constexpr uint64_t kMaxContextTokens = uint64_t{1} << 20;
constexpr uint64_t kMaxDatasetTokens = uint64_t{1} << 28;

enum class Split : uint64_t { kTrain = 0, kHeldOut = 1 };

uint64_t splitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// 63 bits. The lowest is the split, so the two splits share no generator seed at all.
uint64_t generatorSeed(uint64_t seed, Split split, uint64_t index, uint64_t attempt) {
  uint64_t mixed = splitMix64(seed);
  for (uint64_t part : {static_cast<uint64_t>(split), index, attempt}) {
    mixed = splitMix64(mixed ^ part);
  }
  return (mixed >> 2) << 1 | static_cast<uint64_t>(split);
}

std::string quotedList(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Finds questions of one suite whose prompts and answers fit the spec's lengths.
class DatasetBuilder {
 public:
  DatasetBuilder(const v1::Task& spec, const Suite& suite, uint64_t seed,
                 const Tokenizer& tokenizer, int32_t bos_token)
      : spec_(spec), suite_(suite), seed_(seed), tokenizer_(tokenizer), bos_token_(bos_token) {}

  Result<std::vector<Question>> makeSplit(Split split, uint32_t count) const {
    std::vector<Question> questions;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string& task = spec_.tasks(static_cast<int>(i % spec_.tasks_size()));
      ALLOT_ASSIGN(Question question, makeQuestion(task, split, i));
      questions.push_back(std::move(question));
    }
    return questions;
  }

 private:
  // What the tries for one question came to, for the message if none fits.
  struct Misses {
    std::vector<size_t> answer_tokens;  // of seeds whose answer is too long
    std::vector<size_t> prompt_tokens;  // of seeds whose prompt is too long: its shortest
  };

  Result<Question> makeQuestion(const std::string& task, Split split, uint32_t index) const {
    Misses misses;
    for (int attempt = 0; attempt < kSeedsPerQuestion; ++attempt) {
      const uint64_t generator = generatorSeed(seed_, split, index, static_cast<uint64_t>(attempt));
      if (std::optional<Question> found = tryOneSeed(task, generator, misses)) {
        return std::move(*found);
      }
    }
    return tl::unexpected<Error>(nothingFits(task, misses));
  }

  // The longest fitting prompt of a few lengths tried; stops at the first close to contextTokens.
  std::optional<Question> tryOneSeed(const std::string& task, uint64_t generator,
                                     Misses& misses) const {
    const auto limit = static_cast<int64_t>(spec_.context_tokens());
    const int64_t rate = suite_.words_per_100_tokens(task);
    const int64_t aim = limit * 97 / 100;
    int64_t budget_words = std::max<int64_t>(1, limit * rate / 100);
    std::optional<Question> best;
    size_t shortest = SIZE_MAX;
    for (int length = 0; length < kLengthsPerSeed; ++length) {
      std::optional<Draft> draft = suite_.draft(task, generator, budget_words);
      if (!draft) break;
      const size_t answer_tokens = tokenizer_.encode(" " + draft->answer + "\n").size();
      if (answer_tokens > spec_.max_new_tokens()) {
        if (!best) misses.answer_tokens.push_back(answer_tokens);
        return best;
      }
      Question question{task, std::move(draft->prompt), {}, std::move(draft->answer), 0};
      question.prompt_ids = promptIds(question.prompt);
      const auto tokens = static_cast<int64_t>(question.prompt_ids.size());
      if (tokens <= limit && (!best || question.prompt_ids.size() > best->prompt_ids.size())) {
        best = std::move(question);
      }
      if (tokens <= limit && tokens * 100 >= limit * 92) break;
      // At the suite's minimum fewer words change nothing.
      if (!best && static_cast<size_t>(tokens) >= shortest) break;
      shortest = std::min(shortest, static_cast<size_t>(tokens));
      budget_words = std::max<int64_t>(1, budget_words + (aim - tokens) * rate / 100);
    }
    if (!best && shortest != SIZE_MAX) misses.prompt_tokens.push_back(shortest);
    return best;
  }

  std::vector<int32_t> promptIds(const std::string& prompt) const {
    std::vector<int32_t> ids = tokenizer_.encode(prompt);
    if (bos_token_ >= 0) ids.insert(ids.begin(), bos_token_);
    return ids;
  }

  // Names the shortest length seen, and advises one that a tenth of all tries meets, so that each
  // of a dataset's questions then finds one (0.9^200 is nothing).
  static std::string shortestAndAdvice(std::vector<size_t> lengths, uint64_t least) {
    std::sort(lengths.begin(), lengths.end());
    const uint64_t advised = std::max<uint64_t>(lengths[lengths.size() / 10], least);
    return "the shortest of " + std::to_string(kSeedsPerQuestion) + " tried needs " +
           std::to_string(lengths.front()) + ": set it to at least " + std::to_string(advised);
  }

  Error nothingFits(const std::string& task, const Misses& misses) const {
    const std::string tokens = std::to_string(spec_.context_tokens()) + " tokens; ";
    std::string message;
    if (misses.prompt_tokens.empty() && !misses.answer_tokens.empty()) {
      message = "spec.task.maxNewTokens: no " + task + " answer fits in " +
                std::to_string(spec_.max_new_tokens()) + " tokens; " +
                shortestAndAdvice(misses.answer_tokens, 0);
      return {ErrorCode::kUsage, std::move(message)};
    }
    message = "spec.task.contextTokens: no " + task + " question fits in " + tokens;
    const uint64_t twice = 2 * uint64_t{spec_.context_tokens()};
    if (misses.prompt_tokens.empty()) {
      message += "none of " + std::to_string(kSeedsPerQuestion) +
                 " tried has a clear answer: set it to at least " + std::to_string(twice);
    } else {
      // Clear answers being rare at this length, a few more tokens would not do.
      const bool rare = misses.prompt_tokens.size() < kSeedsPerQuestion / 4;
      message += shortestAndAdvice(misses.prompt_tokens, rare ? twice : 0);
    }
    return {ErrorCode::kUsage, std::move(message)};
  }

  const v1::Task& spec_;
  const Suite& suite_;
  uint64_t seed_;
  const Tokenizer& tokenizer_;
  int32_t bos_token_;
};

Result<const Suite*> findSuite(const v1::Task& spec) {
  std::vector<std::string> names;
  for (const Suite& suite : suites()) {
    if (suite.name == spec.suite()) return &suite;
    names.push_back(suite.name);
  }
  return badInput("spec.task.suite: \"" + spec.suite() +
                  "\" is not known; allowed: " + quotedList(names));
}

Status checkSpec(const v1::Task& spec, const Suite& suite) {
  const std::string allowed = "; allowed for suite " + suite.name + ": " + quotedList(suite.tasks);
  if (spec.tasks_size() == 0) return badInput("spec.task.tasks: is empty" + allowed);
  for (int i = 0; i < spec.tasks_size(); ++i) {
    if (std::find(suite.tasks.begin(), suite.tasks.end(), spec.tasks(i)) == suite.tasks.end()) {
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

Result<Dataset> makeDataset(const v1::Task& task, uint64_t seed, const Tokenizer& tokenizer,
                            int32_t bos_token) {
  ALLOT_ASSIGN(const Suite* suite, findSuite(task));
  ALLOT_TRY(checkSpec(task, *suite));
  const DatasetBuilder builder(task, *suite, seed, tokenizer, bos_token);
  Dataset dataset;
  ALLOT_ASSIGN(dataset.train, builder.makeSplit(Split::kTrain, task.train_questions()));
  ALLOT_ASSIGN(dataset.held_out, builder.makeSplit(Split::kHeldOut, task.held_out_questions()));
  return dataset;
}

double grade(const Question& question, const std::string& completion) {
  for (const Suite& suite : suites()) {
    if (std::find(suite.tasks.begin(), suite.tasks.end(), question.task) != suite.tasks.end()) {
      return suite.grade(question.answer, completion);
    }
  }
  return 0;
}

bool isComplete(const std::string& completion) {
  return completion.find('\n') != std::string::npos;
}

std::string datasetDigest(const Dataset& dataset) {
  std::string bytes;
  for (const std::vector<Question>* split : {&dataset.train, &dataset.held_out}) {
    appendSized(bytes, std::to_string(split->size()));
    for (const Question& question : *split) {
      appendSized(bytes, question.prompt);
      appendSized(bytes, question.answer);
    }
  }
  return sha256Hex(bytes);
}

}  // namespace allot
