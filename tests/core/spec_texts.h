#pragma once
// Experiment files as texts, read and refused. For tests.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/spec/spec.h"
#include "tests/results.h"

namespace allot {

inline std::string exampleText() {
  std::ifstream file(std::string(ALLOT_SOURCE_DIR) +
                     "/experiments/recall-layer-budget/experiment.yaml");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline const char* const kHead =
    "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n";
// The three keys that have no default.
inline const char* const kRequiredKeys =
    "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n";

inline std::string tiny(const std::string& more = "") {
  return std::string(kHead) + kRequiredKeys + more;
}

inline v1::Experiment parsed(const std::string& yaml,
                             const std::vector<std::string>& overrides = {}) {
  return valueOf(parseExperiment(yaml, "x.yaml", overrides));
}

inline std::string refusal(const std::string& yaml,
                           const std::vector<std::string>& overrides = {}) {
  const auto result = parseExperiment(yaml, "x.yaml", overrides);
  EXPECT_FALSE(result.has_value()) << "accepted:\n" << yaml.substr(0, 500);
  if (result) return "";
  EXPECT_EQ(result.error().code, ErrorCode::kUsage);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

// The refusal of the tiny file with one key set.
inline std::string refusalOf(const std::string& assignment) {
  return refusal(tiny(), {assignment});
}

}  // namespace allot
