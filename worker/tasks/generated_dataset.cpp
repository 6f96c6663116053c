#include "worker/tasks/generated_dataset.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/spec/choices.h"
#include "core/spec/task_catalogue.h"

namespace allot {
namespace {

constexpr int kSeedsPerQuestion = 200;
constexpr int kLengthsPerSeed = 5;
constexpr int kLengthsToFill = 12;
constexpr int64_t kSlackTokens = 4;  // of a prompt that counts as filling its space

// Maps numbers of tokens to a draft's size.
struct Sizing {
  int64_t overhead_tokens = 0;  // of a draft of size 0
  int64_t size_per_10000_tokens = 0;
  int64_t aim_percent = 97;     // of the limit, at which drafts are aimed after the first
  int64_t enough_percent = 92;  // of the limit, at which a draft is long enough
};

// Finds questions of one suite whose prompts and answers fit the spec's lengths.
class DatasetBuilder {
 public:
  DatasetBuilder(const v1::Task& spec, const Suite& suite, uint64_t seed,
                 const PromptTokens& tokens)
      : spec_(spec), suite_(suite), seed_(seed), tokens_(tokens) {
    for (const std::string& task : spec.tasks()) sizings_[task] = sizingOf(task);
  }

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
  // The failures of the tries for one question, for the message if none fits.
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

  // Returns true if prompts are to be as long as possible, since answers have their tasks' own
  // lengths. Otherwise prompts keep the lengths of earlier releases, for runs that go on.
  bool fills() const { return spec_.max_new_tokens() == 0; }

  // Tokens of contextTokens that are the answer's.
  int64_t answerRoom(const std::string& task) const {
    return suite_.context_holds_answer ? longestAnswer(spec_, task) : 0;
  }
  // Tokens of contextTokens that are the prompt's.
  int64_t limitOf(const std::string& task) const {
    return int64_t{spec_.context_tokens()} - answerRoom(task);
  }

  // Suites without a rate: two drafts show how size maps to tokens of the model.
  Sizing sizingOf(const std::string& task) const {
    if (suite_.size_per_10000_tokens != nullptr) {
      return {.size_per_10000_tokens = suite_.size_per_10000_tokens(task)};
    }
    constexpr int64_t kSmall = 100, kLarge = 400;
    Sizing sizing = sizingBetween(task, kSmall, kLarge);
    // The rate may differ at that size (longer numbers, other words): measured again close to it.
    const int64_t expected =
        (limitOf(task) - sizing.overhead_tokens) * sizing.size_per_10000_tokens / 10000;
    if (expected > 2 * kLarge) sizing = sizingBetween(task, expected / 2, expected);
    return sizing;
  }

  Sizing sizingBetween(const std::string& task, int64_t small, int64_t large) const {
    const int64_t limit = limitOf(task);
    const auto tokensAt = [&](int64_t size) -> int64_t {
      const uint64_t generator = generatorSeed(seed_, Split::kTrain, UINT64_MAX, 0);
      const auto draft = suite_.draft({task, generator, size, std::max<int64_t>(limit, 0)});
      return draft ? static_cast<int64_t>(tokens_.make(task, *draft).prompt_ids.size()) : 0;
    };
    const int64_t low = tokensAt(small), high = tokensAt(large);
    if (low == 0 || high <= low) return {.size_per_10000_tokens = 1000};
    // The overhead at size 0, by the line through both; it may be slightly off.
    const int64_t overhead = std::max<int64_t>(0, low - (high - low) * small / (large - small));
    // The first draft is meant to fit as well: it is aimed one per cent below the limit.
    return {.overhead_tokens = overhead + limit / 100,
            .size_per_10000_tokens = (large - small) * 10000 / (high - low),
            .aim_percent = 99,
            .enough_percent = 97};
  }

  // Sizes that are known to fit and not to fit.
  struct Bracket {
    int64_t fits = 0;
    int64_t over = INT64_MAX;

    void learn(int64_t size, bool does_fit) {
      if (does_fit) fits = std::max(fits, size);
      if (!does_fit) over = std::min(over, size);
    }
    bool closed() const { return over - fits <= 1; }
    // Returns `size` if trying it is informative, else one between the known sizes.
    int64_t next(int64_t size) const {
      if (over == INT64_MAX) return std::max(size, fits + 1);
      return size > fits && size < over ? size : fits + (over - fits) / 2;
    }
  };

  // Returns the longest fitting prompt of a few lengths tried. Stops at the first that is close to
  // the limit, and with fills() also at a size whose next one does not fit.
  std::optional<Question> tryOneSeed(const std::string& task, uint64_t generator,
                                     Misses& misses) const {
    const Sizing& sizing = sizings_.at(task);
    const int64_t rate = sizing.size_per_10000_tokens;
    const int64_t limit = limitOf(task);
    const int64_t aim = fills() ? limit : limit * sizing.aim_percent / 100;
    int64_t size = std::max<int64_t>(1, (limit - sizing.overhead_tokens) * rate / 10000);
    std::optional<Draft> best;
    std::optional<Question> question;
    size_t shortest = SIZE_MAX;
    Bracket bracket;
    for (int length = 0; length < (fills() ? kLengthsToFill : kLengthsPerSeed); ++length) {
      std::optional<Draft> draft = suite_.draft({task, generator, size, limit});
      if (!draft) break;
      const size_t answer_tokens = answerTokens(*draft);
      if (answer_tokens > longestAnswer(spec_, task)) {
        if (best) break;
        misses.answer_tokens.push_back(answer_tokens);
        return std::nullopt;
      }
      Question made = tokens_.make(task, *draft);
      const auto tokens = static_cast<int64_t>(made.prompt_ids.size());
      bracket.learn(size, tokens <= limit);
      if (tokens <= limit && (!best || made.prompt_ids.size() > question->prompt_ids.size())) {
        question = std::move(made);
        best = std::move(draft);
      }
      const int64_t enough =
          fills() ? limit - kSlackTokens : (limit * sizing.enough_percent + 99) / 100;
      if (tokens <= limit && tokens >= enough) break;
      // At the suite's minimum a smaller size changes nothing.
      if (!best && static_cast<size_t>(tokens) >= shortest) break;
      shortest = std::min(shortest, static_cast<size_t>(tokens));
      size = std::max<int64_t>(1, size + (aim - tokens) * rate / 10000);
      if (!fills()) continue;
      if (bracket.closed()) break;
      size = bracket.next(size);
    }
    if (best) {
      tokens_.locateQuestion(*best, &*question);
    } else if (shortest != SIZE_MAX) {
      misses.prompt_tokens.push_back(shortest);
    }
    return question;
  }

  size_t answerTokens(const Draft& draft) const {
    std::string text;
    for (const std::string& answer : draft.answers) text += (text.empty() ? " " : ", ") + answer;
    return tokens_.tokenizer().encode(text + "\n").size();
  }

  // Names the shortest of `lengths`, and advises one that a tenth of them meets: each question of a
  // dataset then finds one (0.9^200 is negligible).
  static std::string shortestAndAdvice(std::vector<size_t> lengths, uint64_t least,
                                       uint64_t beside) {
    std::sort(lengths.begin(), lengths.end());
    const uint64_t advised = std::max<uint64_t>(lengths[lengths.size() / 10] + beside, least);
    return "the shortest of " + std::to_string(kSeedsPerQuestion) + " tried needs " +
           std::to_string(lengths.front() + beside) + ": set it to at least " +
           std::to_string(advised);
  }

  Error nothingFits(const std::string& task, const Misses& misses) const {
    std::string tokens = std::to_string(spec_.context_tokens()) + " tokens";
    const int64_t answer_room = answerRoom(task);
    if (answer_room > 0) tokens += ", " + std::to_string(answer_room) + " of them the answer's";
    tokens += "; ";
    std::string message;
    if (misses.prompt_tokens.empty() && !misses.answer_tokens.empty()) {
      message = "spec.task.maxNewTokens: no " + task + " answer fits in " +
                std::to_string(longestAnswer(spec_, task)) + " tokens; " +
                shortestAndAdvice(misses.answer_tokens, 0, 0);
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
      message += shortestAndAdvice(misses.prompt_tokens, rare ? twice : 0,
                                   static_cast<uint64_t>(answer_room));
    }
    return {ErrorCode::kUsage, std::move(message)};
  }

  const v1::Task& spec_;
  const Suite& suite_;
  uint64_t seed_;
  const PromptTokens& tokens_;
  std::map<std::string, Sizing> sizings_;
};

}  // namespace

Result<Dataset> generateDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                                const PromptTokens& tokens) {
  const DatasetBuilder builder(spec, suite, seed, tokens);
  Dataset dataset;
  ALLOT_ASSIGN(dataset.train, builder.makeSplit(Split::kTrain, trainingQuestions(spec)));
  ALLOT_ASSIGN(dataset.held_out, builder.makeSplit(Split::kHeldOut, spec.held_out_questions()));
  return dataset;
}

}  // namespace allot
