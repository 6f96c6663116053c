#pragma once
// Schedules of others, answered: how an optimiser that is not ours is compared with a learner.
//
// One JSON object a line in, one out, in the same order:
//   {"schedule": [3, 2, 0, 0, 3, 0, 0, 0], "set": 4}
//     the training questions that episode 4 of a run would ask -> {"reward": 0.4375}
//   {"schedule": [...], "heldOut": true}
//     all held-out questions, drawn as an evaluation draws -> {"reward": 0.71, "questions": 480}
//   {"spell": [0, 7], "method": "dense"}
//     those held-out questions after dense prompts, token by token; with a method that uses a
//     budget, under a schedule as well -> {"answers": [{"question": 0, "score": 1, "prompt": [5,
//     1, ...], "tokens": [9, ...]}, ...]}, tokens of the vocabulary
// Each line draws anew: its number, counted from 0, is the ticket. Blocks; one thread.
#include <istream>
#include <ostream>

#include "core/result.h"
#include "worker/engine/engine.h"

namespace allot {

// Until the input ends. kUsage names the line and what is wrong with it; those before it have been
// answered.
Status answerSchedules(const v1::Experiment& experiment, Engine* engine, std::istream* in,
                       std::ostream* out);

}  // namespace allot
