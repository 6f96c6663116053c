#pragma once
// Checks what comes from outside before it is used: results of workers, and policies and states of
// stores, exports and forks. Every error is kData with the reason. Pure; any thread.
#include "allot/v1/experiment.pb.h"
#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/model_shape.h"

namespace allot {

// Checks that a worker of this run can have made the result. behaviour: the policy of the version
// that the result names. If that policy is no longer kept it is null, which is an error.
Status checkResult(const v1::Experiment& experiment, const v1::AggregatorState& state,
                   const v1::EpisodeResult& result, const v1::PolicySnapshot* behaviour);

// Checks that the policy has the total budgets of the experiment, with schedules that fit the
// model. A policy of a run that does not learn by budgets must have none.
Status checkFrontier(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::PolicySnapshot& policy);
// Checks a state: its policy (checkFrontier), and that logits, moments and the learners' sums have
// the sizes and ranges that updates expect. Open question sets are not checked.
Status checkLearners(const v1::Experiment& experiment, const ModelShape& shape,
                     const v1::AggregatorState& state);
// Checks a state that a run begins with: as checkLearners, and that no question set is open.
Status checkBudgets(const v1::Experiment& experiment, const ModelShape& shape,
                    const v1::AggregatorState& state);

}  // namespace allot
