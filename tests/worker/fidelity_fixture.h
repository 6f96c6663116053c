#pragma once
// Prompts of recall-7m in memory, for tests of what worker/engine/fidelity.h measures in their
// states.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/learning/questions.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "tests/worker/datasets.h"
#include "worker/engine/fidelity.h"

namespace allot {

using ByLayer = std::vector<double>;  // [layers]

// The mean of some numbers and its standard error.
struct Estimate {
  double mean = 0, error = 0;
};
inline Estimate estimateOf(const std::vector<double>& numbers) {
  double sum = 0, squares = 0;
  for (const double x : numbers) sum += x, squares += x * x;
  const auto n = static_cast<double>(numbers.size());
  const double mean = sum / n;
  return {mean, std::sqrt((squares / n - mean * mean) / (n - 1))};
}

class FidelityTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto decoder = valueOf(Decoder::load(
        kRecall7m, {.kv_bytes = size_t{256} << 20, .shadow_bits = {4}, .bounds = true}));
    decoder_ = decoder.release();
    tokenizer_ = new Tokenizer(valueOf(Tokenizer::load(kRecall7m + "/tokenizer.json")));
    const v1::Task task =
        generatedTask("recall", {"niah", "multi", "track", "freq"}, 192, 8, 8, 24);
    auto dataset = valueOf(
        makeDataset(task, 5, *tokenizer_, {.bos_token = tokenizer_->bosToken().value_or(-1)}));
    prompts_ = new std::vector<Prompt>;
    ids_.clear();
    tasks_.clear();
    for (size_t i = 0; i < dataset.held_out.size(); ++i) {
      prompts_->push_back(*decoder_->prefill(dataset.held_out[i].prompt_ids));
      ids_.push_back(dataset.held_out[i].prompt_ids);
      tasks_.push_back(static_cast<uint32_t>(i % 3));  // any labels do
    }
  }
  static void TearDownTestSuite() {
    for (Prompt& prompt : *prompts_) decoder_->release(&prompt);
    delete prompts_;
    delete decoder_;
    delete tokenizer_;
  }

  static std::vector<GenerationRow> rows(uint32_t budget) {
    std::vector<GenerationRow> rows;
    for (const Prompt& prompt : *prompts_) {
      rows.push_back({&prompt, SampleSchedule(8, budget),
                      evaluationSequence(static_cast<uint32_t>(rows.size()))});
    }
    return rows;
  }
  static GenerationOptions options(const std::string& text, uint64_t seed) {
    return {.method = methodOf(text), .seed = seed, .max_new_tokens = 24, .is_complete = endsALine};
  }
  static Fidelity measure(const std::string& method, uint32_t budget, uint64_t seed = 3) {
    return valueOf(
        measureFidelity(decoder_, *tokenizer_, rows(budget), tasks_, options(method, seed)));
  }
  // Dense decode, with a probe.
  static std::vector<Generated> decodeDense(const AttentionProbe& probe) {
    GenerationOptions dense = options("dense", 3);
    dense.probe = probe;
    return valueOf(generate(decoder_, *tokenizer_, rows(UINT32_MAX), dense));
  }

  static inline Decoder* decoder_ = nullptr;
  static inline Tokenizer* tokenizer_ = nullptr;
  static inline std::vector<Prompt>* prompts_ = nullptr;
  static inline std::vector<std::vector<int32_t>> ids_;  // of the prompts
  static inline std::vector<uint32_t> tasks_;
};

}  // namespace allot
