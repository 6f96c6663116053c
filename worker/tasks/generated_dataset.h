#pragma once
// Builds datasets of suites that generate their questions: each question gets a seed, and a size
// with which prompt and answer fit the spec's lengths. Pure, any thread.
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/task.h"

namespace allot {

// Builds both splits. A question does not depend on the number of questions. kUsage if nothing
// fits; the message advises a length.
Result<Dataset> generateDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                                const PromptTokens& tokens);

}  // namespace allot
