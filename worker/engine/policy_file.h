#pragma once
// Reads a schedule from a policy.json, and refuses one that was made for another model. Stateless
// functions, any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "allot/v1/result.pb.h"
#include "core/learning/schedule.h"
#include "core/result.h"

namespace allot {

// Returns the schedule for `total_budget`; without one, for the run's own budget. path: the file,
// or a folder with policy.json. kUsage, in one sentence: no such file or budget, or a policy of
// another model, unless any_model is true. A model is known by the digests of its weights and of
// its configuration and tokenizer; a policy that has none by layers and heads, and one of an
// earlier build, which names no model, is taken.
Result<SampleSchedule> readPolicySchedule(const std::string& path,
                                          std::optional<uint64_t> total_budget,
                                          const v1::ModelFacts& model, bool any_model);

}  // namespace allot
