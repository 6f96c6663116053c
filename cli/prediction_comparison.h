#pragma once
// Compares two files of graded answers question by question, for `allot compare`. Any tool may have
// graded them (lm-eval's samples, kvpress, a script). Pure functions, except readPredictions(); any
// thread.
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/evaluation/score_statistics.h"
#include "core/result.h"

namespace allot {

// The names of the members to read. "": the first of the usual names that the file's first line
// has.
struct PredictionFields {
  std::string id;     // id, prompt_id, question_id, doc_id
  std::string score;  // score, exact_match, acc, accuracy, correct
};

// One question's answers in a file. Its score is the mean of all lines that name it.
struct Prediction {
  std::string id;
  double score_sum = 0;  // each in 0..1
  uint64_t lines = 0;
  std::string answer;  // of the first line; "": none
  std::string task;    // of the first line; "": none
  std::string filter;  // of the first line: lm-eval's filter for the answer

  double score() const { return score_sum / static_cast<double>(lines); }
};
// By id, or by task and id if the line has a task: tools number the questions of each task from 0.
using Predictions = std::map<std::string, Prediction>;

// Reads a JSON object a line; blank lines are skipped. Members: id, a string or whole number;
// score, a number in 0..1 or a boolean; answer (also prediction, response), task and filter,
// optional strings. A text member of another type counts as absent. kUsage, naming file and line:
// no JSON object, an id or score that is missing or of another type, a score beyond 0..1, a
// question under two filters. kUsage also for a file without lines.
Result<Predictions> readPredictions(const std::string& path, const PredictionFields& fields);

struct PredictionSide {
  double accuracy = 0;
  Interval interval;  // 95 %
};
// The questions of a task, or of all tasks, that both files answer.
struct PredictionRow {
  std::string task;  // "all"; of runs the cell: method, schedule and budget
  uint64_t questions = 0;
  PredictionSide a, b;
  PairedDifference difference;        // b - a; of several rows all are one family
  std::optional<double> same_answer;  // share of the questions with answers in both files
};
struct PredictionComparison {
  bool of_runs = false;             // of allot's own runs (cli/run_comparison.h)
  uint64_t only_a = 0, only_b = 0;  // questions that the other file lacks; not compared
  std::vector<PredictionRow> rows;  // all, then each task if there are at least two; of runs cells
};

// Compares the files. Intervals are those of allot's tables (core/evaluation/score_statistics.h)
// and are reproducible. If only one file has tasks, questions are matched by id alone. kUsage: no
// question is in both files, or questions are matched by id alone and an id occurs in several
// tasks.
Result<PredictionComparison> comparePredictions(const Predictions& a, const Predictions& b);

// margin: of "as good to within" (core/evaluation/margin.h); nothing: better, worse or neither.
nlohmann::json comparisonJson(const PredictionComparison& comparison,
                              std::optional<double> margin = {});
std::string comparisonText(const PredictionComparison& comparison, const std::string& name_a,
                           const std::string& name_b, std::optional<double> margin = {});

}  // namespace allot
