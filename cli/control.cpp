#include "cli/control.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace allot {
namespace {

constexpr int kTries = 100;

Result<ControlChange> changeDesired(Store* store, Desired wanted,
                                    const std::function<Status(Desired now)>& check) {
  ControlChange change;
  ALLOT_ASSIGN(change.now, changeControl(store, [&](Control* control) -> Result<bool> {
                 change.before = control->desired;
                 change.changed = control->desired != wanted;
                 if (!change.changed) return false;
                 ALLOT_TRY(check(control->desired));
                 control->desired = wanted;
                 return true;
               }));
  return change;
}

// Refuses a spec.update.maxUpdates below the number of updates made.
Status checkUpdatesLeft(Store* store, const std::vector<SpecChange>& changes,
                        const v1::Experiment& next) {
  const bool asked = std::any_of(changes.begin(), changes.end(), [](const SpecChange& change) {
    return change.path == "spec.update.maxUpdates";
  });
  if (!asked) return {};
  ALLOT_ASSIGN(const auto policy, store->readPolicy());
  const uint64_t done = policy ? policy->snapshot.version() : 0;
  const uint64_t most = next.spec().update().max_updates();
  if (most >= done) return {};
  return badInput("spec.update.maxUpdates: " + std::to_string(most) + " is less than the " +
                  std::to_string(done) + " updates that the run has made; " + std::to_string(done) +
                  " ends it now, after an evaluation");
}

}  // namespace

Result<Control> changeControl(Store* store, const std::function<Result<bool>(Control*)>& edit) {
  for (int i = 0; i < kTries; ++i) {
    ALLOT_ASSIGN(const auto control, store->readControl());
    if (!control) return badInput("the run has not begun: there is nothing to control yet");
    Control next = *control;
    ALLOT_ASSIGN(const bool wanted, edit(&next));
    if (!wanted) return next;
    ALLOT_ASSIGN(const bool changed, store->changeControl(next));
    if (changed) return next;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fail(ErrorCode::kUnavailable, "others keep changing this run: try again");
}

Status changeDesired(Store* store, Desired desired) {
  const auto changed = changeControl(store, [&](Control* control) -> Result<bool> {
    if (control->desired == desired) return false;
    control->desired = desired;
    return true;
  });
  return changed ? Status() : tl::unexpected(changed.error());
}

Result<ControlChange> pauseRun(Store* store) {
  return changeDesired(store, Desired::kPaused, [](Desired now) -> Status {
    if (!isOver(now)) return {};
    return badInput("the run is " + std::string(wordOf(now)) + ": there is nothing to pause");
  });
}

Result<ControlChange> resumeRun(Store* store) {
  return changeDesired(store, Desired::kRunning, [store](Desired now) -> Status {
    if (now != Desired::kFinished) return {};
    // spec.stop.maxWorkerHours withdrew evaluations.
    ALLOT_ASSIGN(const auto state, store->readState());
    if (state && !state->has_evaluation()) return {};
    return badInput("the run is finished: use `allot extend --updates N` to go on");
  });
}

Result<ControlChange> stopRun(Store* store) {
  return changeDesired(store, Desired::kStopped, [](Desired now) -> Status {
    if (now == Desired::kFinished) return badInput("the run is finished: there is nothing to stop");
    return {};
  });
}

Result<ControlChange> extendRun(Store* store, uint64_t updates) {
  ControlChange change;
  ALLOT_ASSIGN(change.now, changeControl(store, [&](Control* control) -> Result<bool> {
                 const v1::Spec& now = control->experiment.spec();
                 if (!now.has_update()) {
                   return badInput("the run only measures, it has no spec.update to extend");
                 }
                 const uint64_t most = now.update().max_updates() + updates;
                 ALLOT_ASSIGN(control->experiment,
                              withSettings(control->experiment,
                                           {"spec.update.maxUpdates=" + std::to_string(most)}));
                 change.before = control->desired;
                 change.changed = true;
                 if (control->desired == Desired::kFinished) control->desired = Desired::kRunning;
                 return true;
               }));
  return change;
}

Result<std::vector<SpecChange>> setInRun(Store* store, const std::vector<std::string>& settings) {
  ALLOT_ASSIGN(const auto spec, store->readSpec());
  if (!spec) return badInput("the run has not begun: there is nothing to set yet");
  std::vector<SpecChange> changes;
  ALLOT_TRY(changeControl(store, [&](Control* control) -> Result<bool> {
    ALLOT_ASSIGN(auto next, withSettings(control->experiment, settings));
    ALLOT_TRY(checkLiveChanges(control->experiment, next, spec->synchronous));
    changes = specChanges(control->experiment, next);
    ALLOT_TRY(checkUpdatesLeft(store, changes, next));
    control->experiment = std::move(next);
    return !changes.empty();
  }));
  return changes;
}

}  // namespace allot
