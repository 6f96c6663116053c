#pragma once
// Answers recorded results again, for `allot verify --measure`. One thread.
//
// The input has one JSON object a line, with messages as in an export (store/archive/exact_json.h):
//   {"experiment": {...}}   first: the run's v1.Experiment
//   {"episode": {...}}      a v1.EpisodeResult; its ticket, schedule and questions are used
//   {"unit": {...}}         a v1.EvaluationUnit of measure accuracy
// The output has a line for each line of the input, in the same order:
//   {"facts": {...}, "build": "...", "arithmetic": "..."}   for the experiment; facts:
//   v1.ModelFacts
//   {"scores": [...], "answers": {...}}                     a v1.EvaluationResult, also for an
//   episode: what is recorded of the questions, in order, and the kept answers of a unit
#include <ostream>
#include <string>

#include "core/files/files.h"
#include "core/result.h"
#include "worker/engine/engine.h"

namespace allot {

// Reads the experiment, the first line. kData if it is no experiment.
Result<v1::Experiment> readAskedExperiment(LineReader* in);

// Answers the lines after the first until the input ends. Neighbouring episodes, and neighbouring
// units of the same questions and methods, are answered together as a worker does. kData names a
// line that cannot be read, kIo if the output cannot be written, and the engine's errors.
Status measureAgain(Engine* engine, const std::string& build, LineReader* in, std::ostream* out);

}  // namespace allot
