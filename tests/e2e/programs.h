#pragma once
// Where the programs and the model are that end-to-end tests run, and a fixture with a folder whose
// logs are shown if its test fails. One thread.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/child_process.h"
#include "tests/results.h"
#include "tests/temp_folder.h"
#include "tests/wait_for.h"

namespace allot {

namespace fs = std::filesystem;
using nlohmann::json;

inline const std::string kBin = ALLOT_BIN_DIR;
inline const std::string kAllot = kBin + "/allot";
inline const std::string kSource = ALLOT_SOURCE_DIR;
inline const std::string kModel = kSource + "/experiments/models/recall-7m";
inline const std::string kRecall = kSource + "/experiments/recall-layer-budget/experiment.yaml";

class FolderTest : public testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) temp_.printLogs();
  }
  std::string dir(const std::string& name) const { return folder_ + "/" + name; }

  TempFolder temp_;
  const std::string folder_ = temp_.path();
};

}  // namespace allot
