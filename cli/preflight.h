#pragma once
// Checks a run before it begins: the experiment file, its model, its questions, and how many
// workers fit on this machine. `allot run` uses it and `allot check` prints it. Writes nothing. One
// thread.
#include <nlohmann/json.hpp>
#include <string>

#include "allot/v1/experiment.pb.h"
#include "cli/run_command.h"
#include "cli/worker_sizes.h"
#include "core/result.h"
#include "core/spec/spec_schema.h"

namespace allot {

struct Preflight {
  nlohmann::json facts;  // the output of `allot-worker --check`
  v1::Experiment experiment;
  WorkerSizes sizes;

  bool onGpu() const { return facts.value("device", std::string("cpu")) != "cpu"; }
};

// Lets a worker check file, model and questions. Returns the first error as one sentence.
Result<Preflight> checkBeforeRun(const RunOptions& options);

// Reads the experiment file with its --set. `schema`: of the run that is resumed.
Result<v1::Experiment> readExperiment(const RunOptions& options, uint32_t schema = kSpecSchema);

// Returns the MiB that processes on this machine may still use.
uint64_t availableMib();

// Describes the run: model, questions, learning, cells of the evaluation, memory, device, workers.
// `file` is named in it.
nlohmann::json preflightJson(const Preflight& preflight, const std::string& file);
// Returns the text of that document for people.
std::string preflightText(const nlohmann::json& check, bool colour);

}  // namespace allot
