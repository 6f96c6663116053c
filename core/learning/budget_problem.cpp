#include "core/learning/budget_problem.h"

namespace allot {

AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget) {
  return {layers * per_layer, total_budget * per_layer, spec.policy().min_per_layer(),
          spec.rollout().questions_per_episode(), per_layer};
}

}  // namespace allot
