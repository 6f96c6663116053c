#pragma once
// Prefill on the CPU, with LibTorch's matrix products. It is the only unit of the CPU path that
// includes LibTorch, whose headers take 25 s a translation unit. Private to worker/model/. One
// thread, and LibTorch's.
#include <cstdint>
#include <vector>

#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/weights.h"

namespace allot {

// Cosines and sines of the rotary angles, [positions, head_dim / 2] each. Covers the positions that
// a sequence has reached: those that a config.json allows may be millions.
struct RopeTable {
  std::vector<float> cosines;
  std::vector<float> sines;
  // Extends the table to positions below `positions` and some more. Returns true if it grew.
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
  kernels::DecodeWorkspace queries;  // if each query is attended to separately
};

struct PrefillTask {
  const ModelConfig& config;
  const Weights& weights;
  const RopeTable& rope;
  const KvPool& pool;
  const PromptReading& reading;
  PrefillSpaces* spaces;
  PromptStatistics* statistics;    // is added to
  bool zero_budget_means = false;  // ZeroReads, in the form of kernels::QueryDraws
  int zero_budget_window = 0;
};

// Runs the prompt in chunks, writes its keys and values to `pages` of the pool, and returns the
// logits after its last token, [vocab]. Attention reads keys and values from the pool, so that each
// query sees what later steps see, bfloat16 included. kData if a number is not finite, as with
// damaged weights; the error names the layer and the tensor.
Result<std::vector<float>> readPrompt(const PrefillTask& task, const std::vector<int32_t>& ids,
                                      const std::vector<int32_t>& pages);

}  // namespace allot
