#pragma once
// The evaluation grid: which cells are due at a policy version, cut into units for the workers, and
// what came back summed up. Pure, any thread.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/schedule.h"

namespace allot {

// Held-out questions in one unit.
constexpr uint32_t kChunkQuestions = 32;

// True if evaluation is due once `version` is published.
bool evaluationDue(const v1::Experiment& experiment, uint64_t version);

// The units due at `policy`'s version. Cells that no policy changes (dense, uniform, oneHot,
// explicit) are due at version 0 only; learned ones at every due version, but at 0 only if the
// policy is not uniform there (a fork's).
std::vector<v1::EvaluationUnit> planEvaluation(const v1::Experiment& experiment,
                                               const v1::PolicySnapshot& policy);

// The policy version in a unit's id; nothing if it is no id of planEvaluation's.
std::optional<uint64_t> versionOfUnit(const std::string& unit_id);

// One cell of the grid, summed over the units recorded so far.
struct EvaluationCell {
  uint64_t version = 0;
  std::string method;
  std::string schedule_name;
  uint64_t total_budget = 0;
  SampleSchedule schedule;
  uint64_t n = 0;  // questions
  double sum = 0;  // of scores
  double seconds = 0;
  bool complete = false;  // n is the whole held-out set
};

// Adds results up, whatever the order in which they come.
class EvaluationTable {
 public:
  explicit EvaluationTable(uint32_t held_out_questions) : held_out_(held_out_questions) {}

  // False if the result cannot be: scores outside 0..1, not one a question, questions that are not
  // the unit's, a duration that makes no sense. It is left out.
  bool add(const v1::EvaluationResult& result);
  // By version, method, schedule name, budget.
  std::vector<EvaluationCell> cells() const;
  // Mean score of the newest complete learned cell at this budget; negative if there is none.
  double learnedAccuracy(uint64_t total_budget) const;

 private:
  using Key = std::tuple<uint64_t, std::string, std::string, uint64_t>;
  uint32_t held_out_;
  std::map<Key, EvaluationCell> cells_;
};

}  // namespace allot
