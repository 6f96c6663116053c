#pragma once
// Checks of what comes from outside, before an update takes it: results of workers, and policies
// and states of stores, exports and forks. Pure; any thread.
#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/model_shape.h"

namespace allot {

// Checks that this run can have produced the result: a worker is untrusted input. kData with the
// reason otherwise. behaviour: the policy of the version that the result names; null if it is too
// old to be at hand, which is a reason.
Status checkResult(const v1::Experiment& experiment, const v1::AggregatorState& state,
                   const v1::EpisodeResult& result, const v1::PolicySnapshot* behaviour);

// Checks that schedules can be taken from the policy: that its budgets are those of the experiment,
// and their schedules fit the model. A run that does not learn by budgets must have none. kData
// with the difference otherwise.
Status checkFrontier(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::PolicySnapshot& policy);
// Checks the policy of a state in the same way, and that the sums of its learners are finite and
// have the sizes that updates expect.
Status checkLearners(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::AggregatorState& state);
// Checks a state that a run begins with, whose question sets must all be closed.
Status checkBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                    const v1::AggregatorState& state);

}  // namespace allot
