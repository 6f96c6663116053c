#pragma once
// Changes of a run's settings. Live settings (SpecKey::live) may change while a run goes on. Until
// a result counts, an edited experiment file can change others, too (RunControl::replaceRun). From
// then on such a change needs another run (`allot fork`). Pure functions, any thread.
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/spec_schema.h"

namespace allot {

struct SpecChange {
  std::string path;  // "spec.update.learningRate", "metadata.name"
  std::string from;  // as YAML; of section spec.update: "present" or "absent"
  std::string to;
  bool live = false;
};

// Returns the settings in which `from` and `to` differ: the name, the section spec.update if only
// one of the two has it, then the keys of specRules() in their order.
std::vector<SpecChange> specChanges(const v1::Experiment& from, const v1::Experiment& to);

// Returns kUsage if a run under `from` cannot go on under `to`. synchronous: each ticket of the run
// belongs to a certain update, so that episodesPerUpdate cannot change either. made: the results of
// the run, as in "12 episodes and 30 evaluations", for the message; empty if the caller does not
// know them.
Status checkLiveChanges(const v1::Experiment& from, const v1::Experiment& to, bool synchronous,
                        const std::string& made = "");

// Returns the message with which a run that has results refuses a change of `path`, without the old
// and the new value.
std::string fixedSentence(const std::string& path);

// Returns the settings of `experiment` that a build of this schema does not know and whose values
// differ from SpecRule::before.
std::vector<SpecChange> changesBeyond(uint32_t schema, const v1::Experiment& experiment,
                                      const std::vector<SpecRule>& rules = specRules());

// Returns `in_force` with those settings replaced in which `new_file` differs from `old_file`.
// Others stay, except those of spec.update if `new_file` adds or removes that section.
v1::Experiment mergeChanges(const v1::Experiment& in_force, const v1::Experiment& old_file,
                            const v1::Experiment& new_file);

// Returns `experiment` with each "spec.a.b=value" replaced. kUsage for a key of spec.cluster, or if
// the result is refused (by checkEffects() only if `experiment` passes it).
Result<v1::Experiment> withSettings(const v1::Experiment& experiment,
                                    const std::vector<std::string>& settings);

// Returns the experiment as a file that parses to the same message.
std::string experimentYaml(const v1::Experiment& experiment);

}  // namespace allot
