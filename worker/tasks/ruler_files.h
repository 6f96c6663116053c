#pragma once
// Reads suite ruler from a folder that RULER's own scripts made. Any thread.
#include <string>
#include <vector>

#include "worker/tasks/suite.h"

namespace allot {

// Reads PATH/TASK/validation.jsonl for every task of the spec: `input`, `outputs` and, optional,
// `answer_prefix`. The prompts are complete: the scripts apply the model's template.
Result<std::vector<Record>> readRuler(const std::string& path, const v1::Task& spec);

}  // namespace allot
