#pragma once
// How one held-out question was answered, by method, schedule and budget: `allot show question`.
// One thread; memory does not grow with the run.
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
  uint32_t question = 0;  // index among the held-out ones
  // Only of this policy version; none: of each cell the newest.
  std::optional<uint64_t> version = std::nullopt;
  uint64_t budget = 0;  // only at this total budget; 0: at all
};

class QuestionView {
 public:
  QuestionView(const v1::Experiment& experiment, const QuestionChoice& choice)
      : experiment_(experiment), choice_(choice) {}

  // All evaluations of the run, with their answers.
  void add(const v1::EvaluationResult& result);
  // Nothing of this question has been measured.
  bool empty() const { return cells_.empty(); }

  nlohmann::json json() const;
  // At most 80 columns wide, if names are not long. What models and strangers wrote is in it as
  // legibleLines() has it.
  std::string text(const std::string& run_id, bool colour) const;

 private:
  // Where the answer of a cell is, or why it is not there.
  enum class Kept { kHere, kRight, kNever, kNoRoom, kMissing };
  struct Cell {
    v1::EvaluationUnit unit;
    v1::QuestionScore score;
    std::string worker;
    std::optional<v1::Answer> answer;
    uint32_t left_out = 0;  // of its unit's answers
  };

  Kept keptOf(const Cell& cell) const;
  static const char* wordOf(Kept kept);
  static const char* noteOn(Kept kept);
  std::string taskOf(const Cell& cell) const;
  std::string head(const std::string& run_id) const;
  std::string asked() const;
  std::string table(bool colour) const;
  std::string answers(bool colour) const;
  std::string notes() const;

  const v1::Experiment experiment_;
  const QuestionChoice choice_;
  // By whether they have a budget, method, schedule, budget, repeat.
  std::map<std::tuple<bool, std::string, std::string, uint64_t, uint32_t>, Cell> cells_;
  std::optional<v1::Answer> asked_;  // any answer to it, for the prompt's end and what was expected
};

}  // namespace allot
