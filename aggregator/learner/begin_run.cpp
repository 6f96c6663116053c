#include "aggregator/learner/begin_run.h"

#include <spdlog/spdlog.h>

#include "core/spec/spec_change.h"
#include "core/spec/spec_yaml.h"
#include "store/store_room.h"

namespace allot {
namespace {

// "12 episodes and 30 evaluations"
Result<std::string> madeBefore(RunReader* store, const Replacement& begun) {
  ALLOT_ASSIGN(const auto state, store->readState());
  const std::string episodes = counted(state ? state->episodes() : 0, "episode");
  const std::string evaluations = counted(begun.evaluations, "evaluation");
  if (begun.evaluations == 0) return episodes;
  return begun.updates == 0 ? evaluations : episodes + " and " + evaluations;
}

// Replaces the run if nothing counts yet and its name stays, else returns the refusal. Returns
// false if another process changed the run meanwhile.
Result<bool> replace(Store* store, const RunSpec& stored, const RunSpec& wanted,
                     const Control& before, const Control& next, const Status& refused) {
  if (wanted.experiment.name() != stored.experiment.name()) return tl::unexpected(refused.error());
  ALLOT_ASSIGN(const Replacement replacement, store->replaceRun(wanted, next));
  if (replacement.outcome == Replacement::Outcome::kBegun) {
    ALLOT_ASSIGN(const std::string made, madeBefore(store, replacement));
    ALLOT_TRY(checkLiveChanges(before.experiment, next.experiment, stored.synchronous, made));
  }
  return replacement.outcome == Replacement::Outcome::kReplaced;
}

}  // namespace

Result<RunSpec> beginRun(Store* store, const RunSpec& run) {
  // An account may not be let ask: then a person is told once (Aggregator::lookAtStore).
  if (const auto fill = store->fill()) ALLOT_TRY(checkKeepsKeys(*fill));
  const Status created = store->createRun(run);
  if (!created && created.error().code != ErrorCode::kUsage) return tl::unexpected(created.error());
  while (true) {
    // As stored: a run that goes on keeps its start, its mode and its origin.
    ALLOT_ASSIGN(const auto stored, store->readSpec());
    ALLOT_ASSIGN(const auto control, store->readControl());
    if (!stored || !control) {
      ALLOT_TRY(created);
      return fail(ErrorCode::kData, "the run is not in the store that has just taken it");
    }
    const auto edited = specChanges(control->file, run.experiment);
    if (edited.empty()) return *stored;
    Control next = *control;
    next.experiment = mergeChanges(control->experiment, control->file, run.experiment);
    next.file = run.experiment;
    const Status live = checkLiveChanges(control->experiment, next.experiment, stored->synchronous);
    ALLOT_ASSIGN(const bool changed, live ? store->changeControl(next)
                                          : replace(store, *stored, run, *control, next, live));
    if (!changed) continue;  // somebody else was faster: look again
    for (const SpecChange& change : edited) {
      spdlog::info("{} is now {} (was {})", change.path, change.to, change.from);
    }
    if (live) return *stored;
    spdlog::info("nothing counted yet: the run begins anew as its file is now");
  }
}

}  // namespace allot
