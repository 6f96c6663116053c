#pragma once
// PlanCheck: holds the recorded evaluations of a run to its plans
// (core/evaluation/evaluation_plan.h). The experiment and the policy of a version give the units of
// that version, bit for bit. Part of store/archive; one thread. Memory: about 500 bytes for each
// unit, and the scores of each held-out question.
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/evaluation/layer_loss_table.h"
#include "core/evaluation/question_tasks.h"
#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

// Numbers of planned units that are not recorded, by version and cell, as in "s2anta/learned/32".
using MissingUnits = std::map<std::pair<uint64_t, std::string>, uint64_t>;

class PlanCheck {
 public:
  explicit PlanCheck(const RunHead& head);

  // Notes a recorded evaluation. kData if its unit is recorded twice, if another unit with the same
  // schedule, questions, build and arithmetic has other scores, or if another unit says that a
  // question is of another task.
  Status add(const v1::EvaluationResult& result);
  // Compares the units of this policy's version with its plan.
  // Requires: all evaluations were added. Called for each version in order, from 0 to the head's.
  void compare(const v1::PolicySnapshot& policy);
  // Returns the first fault. kData if the state's measurement of the layers is not that of the
  // recorded units, if a recorded or open unit was not planned, or if a planned one
  // is not recorded although the run does not say that it is open, or says that all is done. A run
  // that has spent spec.stop.maxWorkerHours withdraws its open units.
  // Requires: compare() was called for all versions.
  Status end() const;

  bool isRecorded(const v1::EvaluationUnit& unit) const { return ids_.contains(unit.unit_id()); }
  const MissingUnits& missing() const { return missing_; }
  // Returns the versions without any unit, of those that are due by the settings in force. These
  // may have changed since.
  const std::vector<uint64_t>& unevaluated() const { return unevaluated_; }

 private:
  using Units = std::map<std::string, std::string>;  // bytes by id

  Status compareTasks(const v1::EvaluationResult& result);
  Status compareScores(const v1::EvaluationResult& result);
  bool hoursSpent() const;
  void note(const std::string& id, const std::string& fault);
  void compareMeasurement();

  const v1::Experiment experiment_, in_force_;
  const uint64_t version_;
  const bool finished_;
  std::optional<v1::Measurement> measurement_;  // of the state
  bool inherited_ = false;
  LayerLossTable layer_losses_;
  std::optional<uint64_t> evaluated_;          // the newest version whose units were planned
  double seconds_ = 0;                         // of workers
  std::map<uint64_t, Units> recorded_, open_;  // of versions that were not compared yet
  std::unordered_set<std::string> ids_;
  QuestionTasks tasks_;
  // Digest of the scores, and a unit's id, by the digest of what gives them.
  std::unordered_map<std::string, std::pair<std::string, std::string>> scores_;
  MissingUnits missing_;
  std::vector<uint64_t> unevaluated_;
  std::string fault_;
};

}  // namespace allot
