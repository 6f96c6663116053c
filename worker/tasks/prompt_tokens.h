#pragma once
// PromptTokens: makes a draft the question that the model reads.
//
// Holds references to what it was made with; functions without other state: any thread.
#include <functional>
#include <optional>
#include <string>

#include "worker/model/tokenizer.h"
#include "worker/tasks/task.h"

namespace allot {

class PromptTokens {
 public:
  PromptTokens(const v1::Task& spec, const Tokenizer& tokenizer, const DatasetOptions& options)
      : spec_(spec), tokenizer_(tokenizer), options_(options) {}

  // Rendered and tokenised; context_tokens is left to locateQuestion().
  Question make(const std::string& task, const Draft& draft) const;
  // The same, and no longer than `limit` tokens if the draft may be cut.
  Question makeCut(const std::string& task, const Draft& draft, size_t limit) const;
  // Fills question->context_tokens.
  void locateQuestion(const Draft& draft, Question* question) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::vector<int32_t> encode(std::string_view text) const;

  const v1::Task& spec_;
  const Tokenizer& tokenizer_;
  const DatasetOptions& options_;
};

// Seeds of everything about a question: (seed, split, index, attempt) mixed. 63 bits; the lowest is
// the split, so the two splits share no seed at all.
enum class Split : uint64_t { kTrain = 0, kHeldOut = 1 };
uint64_t generatorSeed(uint64_t seed, Split split, uint64_t index, uint64_t attempt);

}  // namespace allot
