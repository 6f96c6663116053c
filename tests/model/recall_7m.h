#pragma once
// The small model of this repository, and methods by their texts. For tests.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allot/kernels/method.h"

namespace allot {

inline const std::string kRecall7m =
    std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";

inline kernels::MethodOptions methodOf(const std::string& text) {
  kernels::MethodOptions method;
  const auto wrong = kernels::parseMethod(text, &method);
  EXPECT_FALSE(wrong) << text << ": " << *wrong;
  return method;
}
// Returns a method of prompts.
inline kernels::MethodOptions prefillMethod(const std::string& text) {
  kernels::MethodOptions method;
  EXPECT_EQ(kernels::parseMethod(text, &method, kernels::Phase::kPrefill), std::nullopt) << text;
  return method;
}

// Returns what golden.json holds of the model's prompts and answers.
inline const nlohmann::json& goldenLogits() {
  static const nlohmann::json golden = [] {
    std::ifstream file(kRecall7m + "/golden.json");
    return nlohmann::json::parse(file);
  }();
  return golden["logits"];
}
inline std::vector<int32_t> goldenPrompt(size_t i = 0) {
  return goldenLogits()[i]["prompt_ids"].get<std::vector<int32_t>>();
}

// Decoding ends with a line.
inline bool endsALine(const std::string& text) { return text.find('\n') != std::string::npos; }
inline bool neverComplete(const std::string&) { return false; }

}  // namespace allot
