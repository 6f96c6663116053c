#pragma once
// Builds datasets of suites that read their questions from files: divides questions into training
// and held-out ones, and selects the ones to ask.
//
// A hash of the question's text (lower case, blanks collapsed) decides its side, not the seed. A
// question is therefore on one side only, for all seeds and even if the file repeats it. Reads
// files, otherwise pure; any thread.
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/task.h"

namespace allot {

// Builds both sides. Errors (kUsage): a fault of the file, or how many questions a side lacks.
Result<Dataset> readDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                            const PromptTokens& tokens, const DatasetOptions& options);

}  // namespace allot
