#pragma once
// QuestionTasks: holds the evaluations of a run to one task for each held-out question. A value; no
// thread may use it while another changes it. Memory: the scores of each held-out question, once.
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "allot/v1/result.pb.h"

namespace allot {

class QuestionTasks {
 public:
  // A question of which an earlier evaluation names another task.
  struct Conflict {
    uint32_t place = 0;  // of the question among the scores of the later evaluation
    std::shared_ptr<const v1::EvaluationResult> earlier;  // without its answers
    // Returns the place of the question among the scores of `earlier`.
    uint32_t earlierPlace(const v1::EvaluationResult& later) const;
  };

  // Returns the first conflict with the evaluations that were added; nothing if there is none.
  // Requires: the result is possible (whyImpossible).
  std::optional<Conflict> find(const v1::EvaluationResult& result) const;
  // Notes the tasks of questions that no earlier evaluation has.
  // Requires: the result is possible (whyImpossible).
  void add(const v1::EvaluationResult& result);

 private:
  std::unordered_map<uint32_t, std::shared_ptr<const v1::EvaluationResult>> first_;  // by question
};

}  // namespace allot
