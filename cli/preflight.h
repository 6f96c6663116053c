#pragma once
// What is looked at before a run begins: the experiment file, its model, its questions, and how
// many workers this machine holds. `allot run` goes by it and `allot check` shows it. Nothing is
// written. One thread.
#include <nlohmann/json.hpp>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "cli/run_command.h"
#include "cli/worker_sizes.h"
#include "core/result.h"
#include "core/spec/spec_schema.h"

namespace allot {

struct Preflight {
  nlohmann::json facts;  // what `allot-worker --check` answered
  v1::Experiment experiment;
  WorkerSizes sizes;

  bool onGpu() const { return facts.value("device", std::string("cpu")) != "cpu"; }
};

// Has a worker check file, model and questions; of what is wrong the first in one sentence.
Result<Preflight> checkBeforeRun(const RunOptions& options);

// The experiment file with its --set. `schema`: of the run that goes on with it.
Result<v1::Experiment> readExperiment(const RunOptions& options, uint32_t schema = kSpecSchema);

// MiB that this machine's processes may still take.
uint64_t availableMib();

// What a run of it will do: model, questions, learning, cells of the evaluation, memory, device,
// workers. `file` is named in it.
nlohmann::json preflightJson(const Preflight& preflight, const std::string& file);
// The same for people.
std::string preflightText(const nlohmann::json& check, bool colour);

}  // namespace allot
