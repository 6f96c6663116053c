#pragma once
// Checks a run before it begins: the experiment file, its model, its questions, and how many
// workers fit on this machine. `allot run` uses it and `allot check` prints it. Writes nothing. One
// thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "cli/run_command.h"
#include "core/result.h"
#include "core/spec/spec_schema.h"

namespace allot {

// ---- How many workers a machine holds, their memory and GPUs. Pure functions, any thread.

// The findings of `allot-worker --check`, and the machine's resources. Memory in MiB.
struct WorkerNeeds {
  bool gpu = false;
  unsigned gpus = 1;  // for workers, all of one kind
  unsigned cores = 1;
  uint64_t free_mib = 0;      // of the machine, or of one GPU, before workers start
  uint64_t weights_mib = 0;   // of each worker
  uint64_t least_kv_mib = 0;  // of each worker: the longest question and its answer
};

struct WorkerSizes {
  unsigned workers = 1;
  uint64_t kv_mib = 0;     // of each worker
  bool by_memory = false;  // memory limits the number of workers
};

// Computes the sizes. workers: a person's wish; 0: as many as fit, at least one and at most one a
// core, or one on each GPU. kv_mib: a person's wish; 0: equal shares of half the memory that
// weights leave, but at least 64 and at least least_kv_mib. kUsage if the wish kv_mib is below
// least_kv_mib.
Result<WorkerSizes> sizeWorkers(const WorkerNeeds& needs, unsigned workers, uint64_t kv_mib);

// Returns CUDA_VISIBLE_DEVICES of each worker. The calling process sees `seen` GPUs. visible: its
// own CUDA_VISIBLE_DEVICES, if set. The first worker has the first GPU; more workers than GPUs
// share them in turn. Empty with one GPU or none.
std::vector<std::string> gpusOfWorkers(unsigned seen, const std::optional<std::string>& visible,
                                       unsigned workers);
// Returns a text for people like "4 GPUs, a worker on each"; "" if there is nothing to say.
std::string gpusText(unsigned seen, unsigned workers);

// ---- The checks.

struct Preflight {
  nlohmann::json facts;  // the output of `allot-worker --check`
  v1::Experiment experiment;
  WorkerSizes sizes;

  bool onGpu() const { return facts.value("device", std::string("cpu")) != "cpu"; }
};

// Lets a worker check file, model and questions. Prints the mistakes that the file has, except the
// last, which it returns as one sentence.
Result<Preflight> checkBeforeRun(const RunOptions& options);

// Reads the experiment file with the settings of options.set. `schema`: of the run that is resumed.
Result<v1::Experiment> readExperiment(const RunOptions& options, uint32_t schema = kSpecSchema);

// Returns the MiB that processes on this machine may still use; 2048 if unknown.
uint64_t availableMib();

// Describes the run: model, questions, learning, cells of the evaluation, memory, device, workers,
// and warnings of values that are lawful and hardly meant. `file` is named in it.
nlohmann::json preflightJson(const Preflight& preflight, const std::string& file);
// Returns preflightJson()'s document as text for people.
std::string preflightText(const nlohmann::json& check, bool colour);

}  // namespace allot
