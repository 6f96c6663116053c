#pragma once
// Datasets of suites that read their questions from files: which question is for training and which
// is held out, and which of them are asked.
//
// The sides are told apart by a hash of the question's text (lower case, blanks collapsed), not by
// the seed: whatever seed and however often a question stands in the file, it is on one side only.
// Reads files, otherwise pure; any thread.
#include "worker/tasks/prompt_tokens.h"
#include "worker/tasks/task.h"

namespace allot {

// Errors (kUsage): what is wrong with the file, or how many questions are missing on which side.
Result<Dataset> readDataset(const v1::Task& spec, const Suite& suite, uint64_t seed,
                            const PromptTokens& tokens, const DatasetOptions& options);

}  // namespace allot
