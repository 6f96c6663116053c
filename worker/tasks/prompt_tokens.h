#pragma once
// PromptTokens: turns a draft into a question as the model reads it.
//
// Holds references to its constructor's arguments, which must outlive it. Otherwise stateless; any
// thread.
#include <string>

#include "worker/model/tokenizer.h"
#include "worker/tasks/task.h"

namespace allot {

class PromptTokens {
 public:
  PromptTokens(const v1::Task& spec, const Tokenizer& tokenizer, const DatasetOptions& options)
      : spec_(spec), tokenizer_(tokenizer), options_(options) {}

  // Renders and tokenises a draft; context_tokens stays 0.
  Question make(const std::string& task, const Draft& draft) const;
  // Does make() and sets context_tokens. Removes as much from the middle of the part that may be
  // cut as `limit` tokens ask. The prompt is longer if the part is too short.
  Question makeCut(const std::string& task, const Draft& draft, size_t limit) const;
  // Sets question->context_tokens; 0 if the question itself is not found in its prompt.
  void locateQuestion(const Draft& draft, Question* question) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::vector<int32_t> encode(std::string_view text) const;

  const v1::Task& spec_;
  const Tokenizer& tokenizer_;
  const DatasetOptions& options_;
};

enum class Split : uint64_t { kTrain = 0, kHeldOut = 1 };
// Returns the seed of a question: (seed, split, index, attempt) mixed into 63 bits. The lowest bit
// is the split, so that the splits share no seed.
uint64_t generatorSeed(uint64_t seed, Split split, uint64_t index, uint64_t attempt);

}  // namespace allot
