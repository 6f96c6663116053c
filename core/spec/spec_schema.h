#pragma once
// What an older build stored, read by this one.
//
// Keys of the experiment file come with time. Each build knows those of one schema, a number that
// grows whenever keys are added (SpecRule::since), and stores it with the runs that it creates. A
// key that an older build did not know means, in what that build stored, what that build did
// (SpecRule::before): complete() fills it in, wherever a stored experiment is read. Digests stay
// those of what was stored (asOfSchema). Pure functions, any thread.
#include <cstdint>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

// 1: the first exports. 2: evaluation.measures. 3: attention.protocol, generation.
// 4: model.chatTemplate. 5: the keys of spec.task from task.path on; from here on it is stored.
// 6: attention.methodDefaults, streams, repetition, evaluation.answers. 7: evaluation.prefills,
// attention.prefillProfile, and values of attention.prefill beside dense. 8: policy.totalBudgets,
// rollout.episodesPerQuestionSet, update.learner. 9: policy.granularity, policy.zeroReads,
// and learner santa. 10: evaluation.chunkQuestions.
// 11: model.kvDtype, generation.repetitionPenalty, task.split, evaluation.repeats, supportTile,
// agreement, fidelityQuestions, varianceReplicates, and measure variance.
inline constexpr uint32_t kSpecSchema = 11;

// Fills the keys that the build which stored `experiment` did not know. Those are the ones that are
// unset and cannot be: no key whose absence means something takes "" or 0 for a value (a test).
void complete(v1::Experiment* experiment);

// The schema of what was stored without a number: the newest one none of whose keys is absent.
uint32_t schemaOf(const v1::Experiment& stored);

// What a build of that schema would have stored for `experiment`: without the keys it did not know.
v1::Experiment asOfSchema(v1::Experiment experiment, uint32_t schema);

// kUsage if the run was created by a build that knows more than this one. `what`: "run 01J..."
Status checkSchema(uint32_t schema, const std::string& build, const std::string& what);

}  // namespace allot
