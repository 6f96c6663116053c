#pragma once
// The experiment that ships for recall-7m, with settings of a test's own. For tests.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/spec/spec.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {

inline v1::Experiment experiment(const std::vector<std::string>& set,
                                 const std::string& name = "recall-layer-budget") {
  const std::string path =
      std::string(ALLOT_SOURCE_DIR) + "/experiments/" + name + "/experiment.yaml";
  return valueOf(parseExperiment(readFile(path), path, set));
}

}  // namespace allot
