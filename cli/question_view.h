#pragma once
// Shows the answers to one held-out question by method, schedule and budget, for `allot show
// question`. One thread; memory does not grow with the run.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

struct QuestionChoice {
  uint32_t question = 0;  // index in the held-out set
  // Shows only cells of this policy version; none: the newest version of each cell.
  std::optional<uint64_t> version = std::nullopt;
  uint64_t budget = 0;  // shows only cells at this total budget; 0: all
};

class QuestionView {
 public:
  QuestionView(const v1::Experiment& experiment, const QuestionChoice& choice)
      : experiment_(experiment), choice_(choice) {}

  // Requires: called for all evaluations of the run, with their answers.
  void add(const v1::EvaluationResult& result);
  // Returns true if no added evaluation of the question is of the chosen version and budget.
  bool empty() const { return cells_.empty(); }

  nlohmann::json json() const;
  // Returns at most 80 columns, unless names are long. Prompts, expected answers and answers are
  // escaped by legibleLines(), names by printable().
  std::string text(const std::string& run_id, bool colour) const;

 private:
  // Whether the answer of a cell is kept, or why it is not.
  enum class Kept { kHere, kRight, kNever, kNoRoom, kMissing };
  struct Cell {
    v1::EvaluationUnit unit;
    v1::QuestionScore score;
    std::string worker;
    std::optional<v1::Answer> answer;
    uint32_t left_out = 0;  // answers of its unit
  };

  Kept keptOf(const Cell& cell) const;
  static std::string wordOf(Kept kept);
  static const char* noteOn(Kept kept);
  std::string taskOf(const Cell& cell) const;
  std::string head(const std::string& run_id) const;
  std::string asked() const;
  std::string table(bool colour) const;
  std::string answers(bool colour) const;
  std::string notes() const;

  const v1::Experiment experiment_;
  const QuestionChoice choice_;
  // By (has a budget, method, schedule, budget, repeat): the cell of the newest version.
  std::map<std::tuple<bool, std::string, std::string, uint64_t, uint32_t>, Cell> cells_;
  std::optional<v1::Answer> asked_;  // the kept answer with the longest prompt_end, of any cell
};

}  // namespace allot
