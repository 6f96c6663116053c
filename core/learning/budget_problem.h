#pragma once
// What an experiment says of learning at one total budget. Pure; any thread.
#include <cstdint>

#include "allot/v1/experiment.pb.h"
#include "core/learning/additive.h"

namespace allot {

AdditiveProblem problemOf(const v1::Spec& spec, uint32_t layers, uint32_t per_layer,
                          uint32_t total_budget);

}  // namespace allot
