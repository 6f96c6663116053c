#pragma once
// ModelShape: the numbers of a model that the length of a schedule depends on. Values, any thread.
#include <algorithm>
#include <cstdint>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/spec/choices.h"

namespace allot {

struct ModelShape {
  // Converts from a number of layers, for callers to whom heads do not matter.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ModelShape(uint32_t layers_of, uint32_t kv_heads_of = 1, uint32_t heads_of = 1)
      : layers(layers_of), kv_heads(kv_heads_of), heads(heads_of) {}

  uint32_t layers;
  uint32_t kv_heads;  // KV heads of a layer
  uint32_t heads;     // query heads of a layer
};

inline ModelShape shapeOf(const v1::ModelFacts& facts) {
  return {facts.layers(), facts.kv_heads(), facts.heads()};
}

// Returns the entries of a layer in the schedules that the experiment learns, by
// spec.policy.granularity; at least 1.
inline uint32_t entriesPerLayer(const v1::Policy& policy, const ModelShape& shape) {
  const Granularity granularity = granularityOf(policy);
  if (granularity == Granularity::kLayer) return 1;
  // 0 in a damaged store.
  return std::max(1u, granularity == Granularity::kKvHead ? shape.kv_heads : shape.heads);
}

}  // namespace allot
