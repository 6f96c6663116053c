#pragma once
// The small model of this repository, methods by their texts, and a step of one row. For tests.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allot/kernels/method.h"
#include "worker/model/decoder.h"

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

// Returns a step of one row with exact attention, whose pages are these. `schedule` is borrowed.
inline StepBatch oneRow(const std::vector<int32_t>& pages, int32_t token, int32_t length,
                        ScheduleView schedule) {
  StepBatch batch;
  batch.tokens = {token};
  batch.lengths = {length};
  batch.sequences = {1};
  batch.steps = {0};
  batch.schedules = {schedule};
  batch.page_table = pages;
  batch.max_pages = static_cast<int>(pages.size());
  return batch;
}

// Decoding ends with a line.
inline bool endsALine(const std::string& text) { return text.find('\n') != std::string::npos; }
inline bool neverComplete(const std::string&) { return false; }

}  // namespace allot
