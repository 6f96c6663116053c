#pragma once
// Answers that evaluations keep as text (spec.evaluation.answers): their form and their limits.
// Learning reads only scores. Pure functions, any thread.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

// Limits in bytes: of an answer's text, of the end of a prompt, of all references together, and of
// the part that a grader took.
inline constexpr size_t kLongestAnswer = 2000;
inline constexpr size_t kLongestPromptEnd = 400;
inline constexpr size_t kLongestExpected = 400;
inline constexpr size_t kLongestTaken = 200;
// Most tokens that are kept of an answer without text.
inline constexpr int kMostTokensKept = 16;
// Most bytes of all answers of one evaluation unit, and of a run that is not extended (about).
inline constexpr uint64_t kLargestAnswers = 64 * 1024;
inline constexpr uint64_t kAnswersOfARun = 64 * 1024 * 1024;

// One answer as it was generated: any bytes, of any length.
struct GivenAnswer {
  uint32_t question = 0;
  std::string_view text = {};
  std::span<const int32_t> tokens = {};
  std::string_view prompt = {};
  std::span<const std::string> expected = {};
  std::vector<v1::GraderReading> readings = {};
};

// Returns the answer as it is kept. Of a text over kLongestAnswer a quarter of that is the
// beginning, the rest the end. Bytes that are not UTF-8 become U+FFFD.
v1::Answer answerOf(const GivenAnswer& given);

// Returns true if an answer with this score is to be kept. A "wrong" answer is one that either
// grader scores below 1.
bool isKept(const v1::Evaluation& evaluation, const v1::QuestionScore& score);

// Returns the bytes for the answers of one unit: kLargestAnswers, or less if the units of all
// spec.update.maxUpdates would then exceed kAnswersOfARun. Returns 0 for a grid that checkGrid
// refuses.
uint64_t roomForAnswers(const v1::Experiment& experiment, uint32_t layers);

// Fits the answers into `room` serialized bytes: if necessary, cuts all to the same shorter length,
// then leaves out the last ones and counts them. The count alone may exceed `room`.
v1::EvaluationAnswers fitted(std::vector<v1::Answer> answers, uint64_t room);

// Returns true if the answers of a worker's result are possible: at most kLargestAnswers bytes, no
// more than there are scores, and for questions that have scores, each once.
bool answersArePossible(const v1::EvaluationResult& result);

}  // namespace allot
