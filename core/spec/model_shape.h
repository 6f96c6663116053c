#pragma once
// ModelShape: the numbers of a model that schedules and their prices depend on. Values, any thread.
#include <algorithm>
#include <cstdint>

#include "allot/v1/experiment.pb.h"
#include "allot/v1/result.pb.h"
#include "core/spec/choices.h"

namespace allot {

struct ModelShape {
  // Converts from a number of layers, for callers to whom heads do not matter.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ModelShape(uint32_t layers_of, uint32_t kv_heads_of = 1, uint32_t heads_of = 1,
             uint32_t head_dim_of = 64)
      : layers(layers_of), kv_heads(kv_heads_of), heads(heads_of), head_dim(head_dim_of) {}

  uint32_t layers;
  uint32_t kv_heads;  // KV heads of a layer
  uint32_t heads;     // query heads of a layer
  uint32_t head_dim;  // channels of a key or value; 0: not known, nor prices in bytes
};

inline ModelShape shapeOf(const v1::ModelFacts& facts) {
  return {facts.layers(), facts.kv_heads(), facts.heads(), facts.head_dim()};
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
