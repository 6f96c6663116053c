#pragma once
// Changing a run while it goes on: which settings may change, and what a change is.
//
// Live settings (SpecKey::live) may change in a run; every other one shapes results that count.
// Until there are any, an edited experiment file replaces the run's (Store::replaceRun); from then
// on a run with another value is another run: `allot fork`. Pure functions, any thread.
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/spec_schema.h"

namespace allot {

struct SpecChange {
  std::string path;  // "spec.update.learningRate", "metadata.name"
  std::string from;  // as YAML
  std::string to;
  bool live = false;
};

// The settings in which the two differ, in the order of the file.
std::vector<SpecChange> specChanges(const v1::Experiment& from, const v1::Experiment& to);

// kUsage if a run under `from` cannot go on under `to`; the sentence names the setting, the reason
// and the mend. made: what the run has, "12 episodes and 30 evaluations"; empty: the caller does
// not know.
Status checkLiveChanges(const v1::Experiment& from, const v1::Experiment& to, bool synchronous,
                        const std::string& made = "");

// The same refusal where neither value is at hand: of a run that has results.
std::string fixedSentence(const std::string& path);

// The settings of `experiment` that a build of this schema does not know, and by which it would
// have to do something else than by their absence.
std::vector<SpecChange> changesBeyond(uint32_t schema, const v1::Experiment& experiment,
                                      const std::vector<SpecRule>& rules = specRules());

// `in_force` with those settings replaced in which `new_file` differs from `old_file`: an edited
// file changes what was edited in it, and takes back nothing that was changed by command.
v1::Experiment mergeChanges(const v1::Experiment& in_force, const v1::Experiment& old_file,
                            const v1::Experiment& new_file);

// `experiment` with "spec.a.b=value" replaced, checked as an experiment file is (kUsage).
Result<v1::Experiment> withSettings(const v1::Experiment& experiment,
                                    const std::vector<std::string>& settings);

// The experiment as a file that parses to the same message.
std::string experimentYaml(const v1::Experiment& experiment);

}  // namespace allot
