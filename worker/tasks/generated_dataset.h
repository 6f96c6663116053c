#pragma once
// Datasets of suites that generate their questions: for each question a seed and a size whose
// prompt and answer fit the spec's lengths. Pure, any thread.
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/task.h"

namespace allot {

// A question depends on the spec's lengths and its own number, not on how many there are. Errors
// (kUsage): nothing fits, with a length that would do.
Result<Dataset> generateDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                                const PromptTokens& tokens);

}  // namespace allot
