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

// Most bytes that are kept: of an answer's text, of its prompt's end, of its expected answers
// together, and of each GraderReading.taken.
inline constexpr size_t kLongestAnswer = 2000;
inline constexpr size_t kLongestPromptEnd = 400;
inline constexpr size_t kLongestExpected = 400;
inline constexpr size_t kLongestTaken = 200;
// Most tokens that are kept of an answer without text.
inline constexpr int kMostTokensKept = 16;
// Most bytes of the answers of one evaluation unit, and (about) of a run up to
// spec.update.maxUpdates.
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

// Returns the answer as it is kept. A text over kLongestAnswer bytes keeps that many, a quarter
// from its beginning and the rest from its end. Bytes that are not UTF-8 become U+FFFD.
v1::Answer answerOf(const GivenAnswer& given);

// Returns true if spec.evaluation.answers keeps an answer with this score. `wrong` keeps those that
// at least one grader scores below 1.
bool isKept(const v1::Evaluation& evaluation, const v1::QuestionScore& score);

// Returns the most bytes for the answers of one unit: kLargestAnswers, or kAnswersOfARun divided by
// the number of the run's accuracy units up to spec.update.maxUpdates if that is less. Returns 0
// for a grid that checkGrid refuses.
uint64_t roomForAnswers(const v1::Experiment& experiment, uint32_t layers);

// Returns the answers in at most `room` serialized bytes. If they need more, lower limits cut the
// texts, prompt ends and expected answers of all. If they still need more, the last answers are
// left out and counted. The count alone may exceed `room`.
v1::EvaluationAnswers fitted(std::vector<v1::Answer> answers, uint64_t room);

// Returns true if the answers of a worker's result are possible: at most kLargestAnswers bytes; no
// more answers (with those left out) than scores; each for another question, which has a score.
bool answersArePossible(const v1::EvaluationResult& result);

}  // namespace allot
