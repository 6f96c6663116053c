#pragma once
// Prefill on the CPU, its matrix products LibTorch's: the only place of the CPU path that knows it,
// so that its headers (25 s a translation unit) are paid for once. Private to worker/model/.
#include <cstdint>
#include <vector>

#include "allot/kernels/prefill.h"
#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"
#include "worker/model/model_config.h"
#include "worker/model/weights.h"

namespace allot {

// Cosines and sines of the rotary angles, [positions, head_dim / 2] each: of the positions that a
// sequence has reached, not of all that a config.json allows, which may be millions.
struct RopeTable {
  std::vector<float> cosines;
  std::vector<float> sines;
  // Makes the angles of positions below `positions` (at most config.max_positions), if they are not
  // there, and of some more: true where it did.
  bool cover(const ModelConfig& config, int64_t positions);
};

// Qwen3's norms of one position: each head's query [heads, head_dim] and key [kv_heads, head_dim]
// in place, before they are turned; nothing where the model has none.
void normaliseHeads(const LayerWeights& layer, const ModelConfig& config, float* queries,
                    float* keys);

// What attention works in.
struct PrefillSpaces {
  kernels::PrefillWorkspace blocks;
  kernels::DecodeWorkspace queries;  // where each is attended to for itself
};

struct PrefillTask {
  const ModelConfig& config;
  const Weights& weights;
  const RopeTable& rope;
  const KvPool& pool;
  const PromptReading& reading;
  PrefillSpaces* spaces;
  PromptStatistics* statistics;    // added to
  bool zero_budget_means = false;  // ZeroReads, as kernels::QueryDraws has it
  int zero_budget_window = 0;
};

// Runs the prompt in chunks, writes its keys and values to `pages` of the pool, from where
// attention reads them (in bfloat16, if that is what the pool holds: every query sees what later
// steps see), returns the logits after its last token, [vocab]. kData where a number is
// not finite, which weights that are damaged make: the error names the layer and the tensor.
Result<std::vector<float>> readPrompt(const PrefillTask& task, const std::vector<int32_t>& ids,
                                      const std::vector<int32_t>& pages);

}  // namespace allot
