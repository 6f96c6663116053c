#pragma once
// Prompts of recall-7m in memory, for tests of what worker/engine/fidelity.h measures in their
// states.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/learning/questions.h"
#include "tests/results.h"
#include "worker/engine/fidelity.h"
#include "worker/tasks/task.h"

namespace allot {

inline const std::string kModel = std::string(ALLOT_SOURCE_DIR) + "/experiments/models/recall-7m";

using ByLayer = std::vector<double>;  // [layers]

class FidelityTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto decoder = valueOf(
        Decoder::load(kModel, {.kv_bytes = size_t{256} << 20, .shadow_bits = {4}, .bounds = true}));
    decoder_ = decoder.release();
    tokenizer_ = new Tokenizer(valueOf(Tokenizer::load(kModel + "/tokenizer.json")));
    v1::Task task;
    task.set_suite("recall");
    for (const char* name : {"niah", "multi", "track", "freq"}) task.add_tasks(name);
    task.set_context_tokens(192);
    task.set_train_questions(8);
    task.set_held_out_questions(8);
    task.set_max_new_tokens(24);
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
    kernels::MethodOptions method;
    EXPECT_FALSE(kernels::parseMethod(text, &method)) << text;
    return {.method = method,
            .seed = seed,
            .max_new_tokens = 24,
            .is_complete = [](const std::string& answer) {
              return answer.find('\n') != std::string::npos;
            }};
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
