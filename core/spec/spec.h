#pragma once
// The experiment file: YAML text in, a checked v1::Experiment out.
//
// specKeys() has a row for each setting under `spec`: path, type, default, allowed values, meaning.
// The parser, its error messages and these rows follow the rules of core/spec/spec_rules.h. Pure
// functions, any thread.
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
  std::string default_value;  // YAML, "required", or a description if it follows from other keys
  std::string allowed;        // "1..1000000" or "adam, sgd"
  std::string meaning;        // one or more sentences
  bool live = false;          // may change while a run goes on (core/spec/spec_change.h)
};

// Returns the rows, ordered by section; those of spec.cluster come last.
const std::vector<SpecKey>& specKeys();

std::string specKeysMarkdown();

// Parses and checks a file that a person applies (checkEffects included). `place` names the file in
// errors. `overrides` are "spec.a.b=value" (value is YAML); they replace or add keys before the
// check. A value that Kubernetes reads as something else is refused. Errors are kUsage, as in
// "x.yaml:8: spec.policy.totalBudget: 0 is out of range 1..1000000". The error is the first
// mistake; `mistakes` gets all sentences. A rule that joins keys is checked once their sections
// have none.
Result<v1::Experiment> parseExperiment(const std::string& yaml, const std::string& place,
                                       const std::vector<std::string>& overrides = {},
                                       std::vector<std::string>* mistakes = nullptr);

// Parses the file of a run that exists. As parseExperiment, but without checkEffects and without
// the rule on quotes: an older build may have stored what these refuse today. A key that the run's
// `schema` does not know, and that the file leaves out, has SpecRule::before instead of today's
// default.
Result<v1::Experiment> parseStoredExperiment(const std::string& yaml, const std::string& place,
                                             const std::vector<std::string>& overrides = {},
                                             uint32_t schema = kSpecSchema,
                                             const std::vector<SpecRule>& rules = specRules());

// The file of a run, and the schema that it was read by.
struct FileOfRun {
  v1::Experiment experiment;
  uint32_t schema = kSpecSchema;
};
// Parses as parseStoredExperiment, by the run's `schema`. If the file gives a key that `schema`
// does not know another value than SpecRule::before, parses by the newest schema instead.
Result<FileOfRun> parseFileOfRun(const std::string& yaml, const std::string& place,
                                 const std::vector<std::string>& overrides, uint32_t schema,
                                 const std::vector<SpecRule>& rules = specRules());

// Returns kUsage for some keys without effect (a goal that no evaluation can reach, a chat template
// that no question is asked in, ...), and if the name begins with a digit. A stored experiment need
// not pass. `place` as in parseExperiment. effectsOf() returns what each check says.
Status checkEffects(const v1::Experiment& experiment, const std::string& place);
std::vector<Status> effectsOf(const v1::Experiment& experiment, const std::string& place);

// Returns kUsage if the experiment learns and minPerLayer in each of `layers` takes all of
// spec.policy.totalBudget, or more than a budget at which the learned schedule is measured.
Status checkEffects(const v1::Experiment& experiment, uint32_t layers);

// Returns kUsage if a stored experiment has a word for a choice (core/spec/choices.h) that this
// build does not know; one stored by a newer build may. A missing word is allowed.
Status checkWords(const v1::Experiment& experiment, const std::string& place);

// Returns kUsage if the experiment does not fit the model: no layers, minPerLayer * layers above a
// total budget, an explicit schedule without one entry for each layer, oneHot with one layer or
// with a budget below the number of layers, or a granularity by heads with more entries than a
// schedule or a surrogate may have.
Status checkAgainstModel(const v1::Experiment& experiment, const ModelShape& shape);

// Returns deterministic bytes of a message: equal messages have equal bytes.
std::string canonicalBytes(const google::protobuf::Message& message);
// Returns the SHA-256 of canonicalBytes(), in hex.
std::string specDigest(const v1::Experiment& experiment);

}  // namespace allot
