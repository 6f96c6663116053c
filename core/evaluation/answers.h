#pragma once
// Answers that evaluations keep as text (spec.evaluation.answers): what is kept of one, and how
// much room there is for them. Whoever only learns from scores never reads them. Pure functions,
// any thread.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

// Bytes that are kept at most: of an answer, of a prompt's end, of what was expected, and of what
// each grader took.
inline constexpr size_t kLongestAnswer = 2000;
inline constexpr size_t kLongestPromptEnd = 400;
inline constexpr size_t kLongestExpected = 400;
inline constexpr size_t kLongestTaken = 200;
// Tokens that stand for an answer that is no text.
inline constexpr int kMostTokensKept = 16;
// Bytes of all answers of one evaluation unit, and about so many of a run that is not extended.
inline constexpr uint64_t kLargestAnswers = 64 * 1024;
inline constexpr uint64_t kAnswersOfARun = 64 * 1024 * 1024;

// One answer, as it was made: any bytes, of any length.
struct GivenAnswer {
  uint32_t question = 0;
  std::string_view text = {};
  std::span<const int32_t> tokens = {};
  std::string_view prompt = {};
  std::span<const std::string> expected = {};
  std::vector<v1::GraderReading> readings = {};
};

// What is kept of it: its beginning and, more of it, its end, where graders look.
v1::Answer answerOf(const GivenAnswer& given);

// Whether an answer with this score is to be kept: "wrong" is one that either grader scores below
// 1.
bool isKept(const v1::Evaluation& evaluation, const v1::QuestionScore& score);

// Bytes for the answers of one unit: kLargestAnswers, or less where the run's updates, as many as
// its experiment asks for, bring so many units that these would be more than kAnswersOfARun. A run
// that is extended has more units, and what its earlier ones took beside. 0 where the grid is one
// that checkGrid refuses.
uint64_t roomForAnswers(const v1::Experiment& experiment, uint32_t layers);

// The answers, cut shorter all alike where they have no room, and the last of them left out where
// that is not enough.
v1::EvaluationAnswers fitted(std::vector<v1::Answer> answers, uint64_t room);

// Whether the answers of a result, which a worker sent, can be: of questions that the result has
// scores of, each once, and no larger than they may be. A result without any can be.
bool answersCanBe(const v1::EvaluationResult& result);

}  // namespace allot
