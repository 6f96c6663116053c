#pragma once
// Decoders of recall-7m on a GPU and a CPU, and sequences that are decoded by hand. For tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/learning/schedule.h"
#include "tests/gpu/visible_gpu.h"
#include "tests/model/recall_7m.h"
#include "tests/results.h"
#include "worker/model/decoder.h"

namespace allot {

constexpr uint32_t kAll = UINT32_MAX;
// Logits are of the order of 10. Prompts: float32 on both sides, sums in another order.
constexpr float kPromptTolerance = 2e-3f;
// Steps: bfloat16 caches on both sides. A key that is computed a little differently may be rounded
// to the next bfloat16, 2^-8 of it away.
constexpr float kStepTolerance = 5e-2f;
// Queries and weights are rounded to bfloat16 in a prompt that is read by blocks, on the GPU alone.
constexpr float kChosenTolerance = 2.5e-1f;

using Ids = std::vector<int32_t>;

inline std::vector<std::pair<Ids, Ids>> goldenCases() {
  std::vector<std::pair<Ids, Ids>> cases;
  for (const auto& one : goldenLogits()) {
    cases.emplace_back(one["prompt_ids"].get<Ids>(), one["answer_ids"].get<Ids>());
  }
  return cases;
}

inline std::unique_ptr<Decoder> load(Device device, const std::string& folder = kRecall7m,
                                     WeightType type = WeightType::kFloat32,
                                     kernels::Element element = kernels::Element::kBFloat16,
                                     ZeroReads zero_reads = ZeroReads::kOff) {
  return valueOf(Decoder::load(folder,
                               {.kv_bytes = size_t{256} << 20,
                                .element = element,
                                .shadow_bits = {4},
                                .bounds = true,
                                .zero_reads = zero_reads},
                               device, type));
}

// The CPU attends to what its cache holds in a prefill, too; on a GPU a prompt with float32 weights
// attends to keys that are not rounded yet.
inline std::unique_ptr<Decoder> unroundedCpu(const std::string& folder = kRecall7m) {
  return load(Device::kCpu, folder, WeightType::kFloat32, kernels::Element::kFloat32);
}

// A sequence that is decoded by hand: its prompt, pages of its own from the prompt's last on.
struct Sequence {
  Sequence(Decoder* decoder, const Prompt& prompt, uint32_t name, SampleSchedule schedule)
      : decoder_(*decoder), length(prompt.length), name(name), schedule(std::move(schedule)) {
    KvPool& pool = decoder_.pool();
    const size_t shared = static_cast<size_t>(length) / static_cast<size_t>(pool.pageSize());
    own = *pool.allocate(pool.pagesFor(static_cast<size_t>(length) + 200) - shared);
    pages.assign(prompt.pages.begin(), prompt.pages.begin() + shared);
    if (shared < prompt.pages.size()) pool.copyPage(prompt.pages[shared], own[0]);
    pages.insert(pages.end(), own.begin(), own.end());
  }
  ~Sequence() { decoder_.pool().release(own); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Decoder& decoder_;
  Ids pages, own;
  int32_t length;
  uint32_t name;
  uint32_t made = 0;
  SampleSchedule schedule;
};

// The next step of the rows: one token to each.
inline StepBatch batchOf(const std::vector<Sequence*>& rows, const Ids& tokens,
                         const std::string& method) {
  StepBatch batch;
  batch.method = methodOf(method);
  batch.seed = 5;
  for (const Sequence* row : rows) {
    batch.max_pages = std::max(batch.max_pages, static_cast<int>(row->pages.size()));
  }
  batch.page_table.assign(rows.size() * static_cast<size_t>(batch.max_pages), 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    Sequence& row = *rows[r];
    batch.tokens.push_back(tokens[r]);
    batch.lengths.push_back(++row.length);
    batch.sequences.push_back(row.name);
    batch.steps.push_back(++row.made);
    batch.schedules.push_back(row.schedule);
    std::copy(row.pages.begin(), row.pages.end(),
              batch.page_table.begin() +
                  static_cast<std::ptrdiff_t>(r * static_cast<size_t>(batch.max_pages)));
  }
  return batch;
}

// Feeds one token to each; their logits, [rows, vocab].
inline std::vector<float> feed(Decoder* decoder, const std::vector<Sequence*>& rows,
                               const Ids& tokens, const std::string& method,
                               std::vector<kernels::RowStatistics>* statistics = nullptr) {
  const StepBatch batch = batchOf(rows, tokens, method);
  const auto logits = decoder->step(batch, statistics);
  EXPECT_TRUE(logits) << logits.error().message;
  return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
}

inline float largestGap(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  float gap = 0;
  for (size_t i = 0; i < a.size(); ++i) gap = std::max(gap, std::abs(a[i] - b[i]));
  return gap;
}

// Feeds the same tokens on both sides, the methods by turns, and compares logits, and the counts
// of each step by `compare`.
inline void expectSameSteps(
    Decoder* cpu, Decoder* gpu, const Ids& ids, const Ids& tokens, const SampleSchedule& schedule,
    const std::vector<std::string>& methods,
    const std::function<void(const kernels::RowStatistics& made,
                             const kernels::RowStatistics& wanted)>& compare) {
  auto expected = valueOf(cpu->prefill(ids)), prompt = valueOf(gpu->prefill(ids));
  Sequence on_cpu(cpu, expected, 1, schedule), on_gpu(gpu, prompt, 1, schedule);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& method = methods[i % methods.size()];
    std::vector<kernels::RowStatistics> wanted(1), made(1);
    const auto should = feed(cpu, {&on_cpu}, {tokens[i]}, method, &wanted);
    const auto is = feed(gpu, {&on_gpu}, {tokens[i]}, method, &made);
    ASSERT_LE(largestGap(is, should), kStepTolerance) << method << ", step " << i;
    compare(made[0], wanted[0]);
  }
  cpu->release(&expected);
  gpu->release(&prompt);
}

class DecoderCuda : public testing::Test {
 protected:
  void SetUp() override {
    requireGpu(cudaUnavailable());
    if (IsSkipped() || HasFatalFailure()) return;
    gpu_ = load(Device::kCuda);
    ASSERT_TRUE(gpu_);
  }
  std::unique_ptr<Decoder> gpu_;
};

}  // namespace allot
