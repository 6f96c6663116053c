#pragma once
// Whether what came from outside is what updates by total budgets (core/learning/budget_update.h)
// take it for. Pure; any thread.
#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "core/result.h"
#include "core/spec/model_shape.h"

namespace allot {

// Whether a policy that came from outside is one of this experiment and such a model, so that
// schedules can be taken from it; of a run that does not learn by budgets, whether it has none.
// kData says what is wrong.
Status checkFrontier(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::PolicySnapshot& policy);
// The same of a state, whose learners' sums have the sizes that updates take them for.
Status checkLearners(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::AggregatorState& state);
// And of one that a run begins with.
Status checkBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                    const v1::AggregatorState& state);

}  // namespace allot
