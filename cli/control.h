#pragma once
// Changes a run's control record: pause, resume, stop, extend, set. Each function reads the record,
// changes it and writes it, and begins again if another process has written the record meanwhile.
// Without a record: kUsage. One thread.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/spec_change.h"
#include "store/store.h"

namespace allot {

// Repeats read, `edit` and write while other processes interfere, at most 100 times (then
// kUnavailable). Returns the edited record, with the revision that was read. An error of `edit` is
// returned. If `edit` returns false, nothing is written.
Result<Control> changeControl(Store* store, const std::function<Result<bool>(Control*)>& edit);

// Sets the desired state without a check.
Status changeDesired(Store* store, Desired desired);

struct ControlChange {
  bool changed = false;
  Desired before = Desired::kRunning;
  Control now;
};

// Change the desired state, unless the run already has it. kUsage: to pause a run that is over, to
// stop a finished one, or to resume a finished one that has been evaluated.
Result<ControlChange> pauseRun(Store* store);
Result<ControlChange> resumeRun(Store* store);
Result<ControlChange> stopRun(Store* store);
// Adds `updates` to spec.update.maxUpdates; a finished run goes on. kUsage without spec.update, or
// if the sum is too large.
Result<ControlChange> extendRun(Store* store, uint64_t updates);

// Applies settings like "spec.a.b=value" to a run. Returns the changes. kUsage, with the reason,
// for a wrong setting, a key that a run cannot change, or a spec.update.maxUpdates below the
// updates made.
Result<std::vector<SpecChange>> setInRun(Store* store, const std::vector<std::string>& settings);

}  // namespace allot
