#pragma once
// Checks spec.policy.price: what budgets count, and what cannot be learned or measured by a price.
// Part of core/spec; pure functions, any thread.
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// Checks that each total budget in the file is a share, as in 15 %, if and only if the policy has
// prices.
Status checkShares(const YamlValue& root, const std::string& place, const v1::Spec& spec);

// Checks that an experiment with prices has nothing that has no price: a method whose reads its
// budget does not bound, schedules of heads, learners and schedules that count reads; and that it
// has spec.policy.stepTimes if and only if its price is time.
Status checkPrices(const v1::Spec& spec, const std::string& place);

}  // namespace allot
