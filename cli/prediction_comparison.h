#pragma once
// `allot compare`: two files of graded answers set beside each other, question by question,
// whatever tool graded them (lm-eval's samples, kvpress, a script). Pure functions but for
// readPredictions(), any thread.
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/evaluation/score_statistics.h"
#include "core/result.h"

namespace allot {

// Which members of a line say what. "": the first of the usual names that the first line has.
struct PredictionFields {
  std::string id;     // id, prompt_id, question_id, doc_id
  std::string score;  // score, exact_match, acc, accuracy, correct
};

// One question's answers in a file: the mean of as many lines as name it.
struct Prediction {
  std::string id;
  double score_sum = 0;  // each in 0..1
  uint64_t lines = 0;
  std::string answer;  // of the first line; "" where there is none
  std::string task;    // the same
  std::string filter;  // what read the answer, as lm-eval's lines say; the same in all lines

  double score() const { return score_sum / static_cast<double>(lines); }
};
// By task, where lines say one, and id: tools count the questions of each task from 0.
using Predictions = std::map<std::string, Prediction>;

// A JSON object a line, blank lines aside. Members: id, a string or whole number; score, a number
// in 0..1 or a boolean; answer (also prediction, response), task and filter, optional strings.
// kUsage, naming file and line: no JSON object, a member that is missing or of another kind, a
// question under two filters, no line at all.
Result<Predictions> readPredictions(const std::string& path, const PredictionFields& fields);

struct PredictionSide {
  double accuracy = 0;
  Interval interval;  // 95 %
};
// A task, or all of them: the questions that both files answer.
struct PredictionRow {
  std::string task;  // "all"
  uint64_t questions = 0;
  PredictionSide a, b;
  PairedDifference difference;        // b - a
  std::optional<double> same_answer;  // share of questions; where both files have answers
};
struct PredictionComparison {
  uint64_t only_a = 0, only_b = 0;  // questions that the other file lacks, which do not count
  std::vector<PredictionRow> rows;  // all, then each task where there are two at least
};

// Intervals are those of allot's tables (core/evaluation/score_statistics.h), the same each time.
// kUsage where no question is in both, or where one file alone has tasks and its ids repeat over
// them.
Result<PredictionComparison> comparePredictions(const Predictions& a, const Predictions& b);

nlohmann::json comparisonJson(const PredictionComparison& comparison);
std::string comparisonText(const PredictionComparison& comparison, const std::string& name_a,
                           const std::string& name_b);

}  // namespace allot
