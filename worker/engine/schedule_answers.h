#pragma once
// Answers questions under given schedules, so that another optimiser can be compared with a
// learner. Blocks on the input; one thread.
//
// Reads one JSON object a line and writes one for each, in the same order:
//   {"schedule": [3, 2, 0, 0, 3, 0, 0, 0], "set": 4}
//     the training questions of set 4, by default of set 0 -> {"reward": 0.4375}
//   {"schedule": [...], "heldOut": true}
//     all held-out questions, drawn as an evaluation draws -> {"reward": 0.71, "questions": 480}
//   {"policy": "runs/a/policy.json", "totalBudget": 8, "heldOut": true}
//     as with a schedule, under that of a policy, by default the one for its run's own budget; a
//     policy that was made for another model is refused (worker/engine/policy_file.h)
//   {"spell": [0, 7], "method": "dense"}
//     those held-out questions after dense prompts, as tokens of the vocabulary; a method that uses
//     a budget needs a schedule, too -> {"answers": [{"question": 0, "score": 1,
//     "prompt": [5, 1, ...], "tokens": [9, ...]}, ...]}
// The number of a line, counted from 0, is the ticket of its episode, which seeds the draws.
#include <istream>
#include <ostream>

#include "core/result.h"
#include "worker/engine/engine.h"

namespace allot {

// Answers until the input ends. kUsage names a line that cannot be read, kIo if the output cannot
// be written, and the engine's errors. The lines before the fault have been answered.
// any_model: policies of other models are not refused.
Status answerSchedules(const v1::Experiment& experiment, Engine* engine, std::istream* in,
                       std::ostream* out, bool any_model = false);

}  // namespace allot
