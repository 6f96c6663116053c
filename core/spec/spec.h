#pragma once
// The experiment file: YAML text in, a checked v1::Experiment out.
//
// Every key that the parser knows is one row of specKeys(): path, type, default, allowed values,
// meaning. The parser, its error messages and the table of keys all come from those rows, so
// they cannot drift apart. Pure functions, any thread.
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/model_shape.h"
#include "core/spec/spec_schema.h"

namespace allot {

struct SpecKey {
  std::string path;           // "spec.policy.totalBudget"
  std::string type;           // "integer", "number", "string", "list of integers", ...
  std::string default_value;  // as YAML; "required" when there is none
  std::string allowed;        // "1..1000000" or "adam, sgd"
  std::string meaning;        // one sentence
  bool live = false;          // may change while a run goes on (core/spec/spec_change.h)
};

// All keys under `spec`, in the order of the file.
const std::vector<SpecKey>& specKeys();

// The rows above as a Markdown table (docs/reference/experiment-file.md holds exactly it).
std::string specKeysMarkdown();

// Parses and checks. `place` names the file in errors. `overrides` are "spec.a.b=value" (value is
// YAML); they replace or add keys before the check. Errors (kUsage) name the place, path, value and
// what is allowed, e.g. "x.yaml: spec.policy.totalBudget: 0 is out of range 1..1000000".
Result<v1::Experiment> parseExperiment(const std::string& yaml, const std::string& place,
                                       const std::vector<std::string>& overrides = {});

// The same for a run that exists, maybe of an older build. A key that its build did not know, by
// the run's `schema`, and that the file leaves out, is not today's default but what that build did.
// Without checkEffects: it may have been stored with what is refused today.
Result<v1::Experiment> parseStoredExperiment(const std::string& yaml, const std::string& place,
                                             const std::vector<std::string>& overrides = {},
                                             uint32_t schema = kSpecSchema,
                                             const std::vector<SpecRule>& rules = specRules());

// The same, and the schema by which the file was read: the run's, unless the file gives a key that
// a build of that schema does not know. The run is then of this build, which older ones refuse, and
// its file means what it means to this build.
struct FileOfRun {
  v1::Experiment experiment;
  uint32_t schema = kSpecSchema;
};
Result<FileOfRun> parseFileOfRun(const std::string& yaml, const std::string& place,
                                 const std::vector<std::string>& overrides, uint32_t schema,
                                 const std::vector<SpecRule>& rules = specRules());

// kUsage if a key of the file would silently be without effect: a goal that no evaluation can
// reach, a chat template that nothing is asked in, an explicit schedule at a sum that is no budget.
// The sentence names the key and what makes it so. For files that are applied, not for what is
// stored. `place` as above.
Status checkEffects(const v1::Experiment& experiment, const std::string& place);

// The same of what needs the number of layers: a minPerLayer that leaves nothing to learn, or more
// than a budget at which the learned schedule is measured. Called before a run begins.
Status checkEffects(const v1::Experiment& experiment, uint32_t layers);

// kUsage if a stored experiment chooses by a word that this build does not know, as a newer one's
// may: what it means here would be another choice. A missing word is allowed.
Status checkWords(const v1::Experiment& experiment, const std::string& place);

// Checks what needs the model's shape: minPerLayer * layers <= totalBudget, explicit schedules with
// one entry a layer, oneHot, as many entries as a schedule may have. Called once it is known.
Status checkAgainstModel(const v1::Experiment& experiment, const ModelShape& shape);

// Deterministic bytes of the experiment, and their SHA-256 in hex: equal files, equal digests.
std::string canonicalBytes(const v1::Experiment& experiment);
std::string specDigest(const v1::Experiment& experiment);

}  // namespace allot
