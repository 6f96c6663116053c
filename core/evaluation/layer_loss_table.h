#pragma once
// LayerLossTable: adds up the units of measure layer-loss into the run's measurement. One thread.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"

namespace allot {

class LayerLossTable {
 public:
  LayerLossTable(const v1::Experiment& experiment, uint32_t layers);

  // Adds a result; results of other measures are ignored.
  // Requires: the result is possible (whyImpossible), and its unit is planned.
  void add(const v1::EvaluationResult& result);
  // Returns the measurement once all planned units were added. It does not depend on the order of
  // the calls: sums are made in the order of the plan.
  std::optional<v1::Measurement> complete() const;

 private:
  std::vector<v1::EvaluationUnit> plan_;
  uint32_t layers_;
  std::map<std::string, std::vector<v1::AgreementCell>> cells_;  // by unit id
};

}  // namespace allot
