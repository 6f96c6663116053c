#pragma once
// Prefill on the CPU, with LibTorch's matrix products. On the CPU's path only this unit includes
// at::Tensor, whose headers take 25 s a translation unit. Private to worker/model/. One thread.
#include <cstdint>
#include <vector>

#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/weights.h"

namespace allot {

// Cosines and sines of the rotary angles, times the scaling's magnitude, [positions, head_dim / 2]
// each. The table grows with the longest sequence: a config.json may allow millions of positions.
struct RopeTable {
  std::vector<float> cosines;
  std::vector<float> sines;
  // Extends the table to at least `positions`. Returns true if it grew.
  // Requires: positions <= config.max_positions.
  bool cover(const ModelConfig& config, int64_t positions);
};

// Applies Qwen3's norms to one position in place, before the rotation: queries [heads, head_dim],
// keys [kv_heads, head_dim]. Does nothing for a model without such norms.
void normaliseHeads(const LayerWeights& layer, const ModelConfig& config, float* queries,
                    float* keys);

// Work memory of attention.
struct PrefillSpaces {
  kernels::PrefillWorkspace blocks;
  kernels::DecodeWorkspace queries;  // for methods that attend query by query
};

struct PrefillTask {
  const ModelConfig& config;
  const Weights& weights;
  const RopeTable& rope;
  const KvPool& pool;
  const PromptReading& reading;
  PrefillSpaces* spaces;
  PromptStatistics* statistics;    // is added to
  bool zero_budget_means = false;  // ZeroReads, as in kernels::QueryDraws
  int zero_budget_window = 0;
  uint64_t* saturated = nullptr;  // kernels::AppendInputs
};

// Runs the prompt in chunks, writes its keys and values to `pages` of the pool, and returns the
// logits after its last token, [vocab]. Attention reads keys and values from the pool, so that each
// query sees what later steps see, bfloat16 included. kData names the layer, except for logits: a
// number is not finite, as with damaged weights, or the pool lacks data that the method reads.
// Errors of PromptReading's saleTau() and observer.
// Requires: task.rope covers the prompt.
Result<std::vector<float>> readPrompt(const PrefillTask& task, const std::vector<int32_t>& ids,
                                      const std::vector<int32_t>& pages);

}  // namespace allot
