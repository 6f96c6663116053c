#pragma once
// Changes a run's control record: pause, resume, stop, extend, set. Each function reads the record,
// changes it and writes it, and begins again if another process has written meanwhile. All of them
// except changeDesired() check that the change makes sense. One thread.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/spec_change.h"
#include "store/store.h"

namespace allot {

// Repeats read, `edit` and write while other processes interfere, at most 100 times (then
// kUnavailable), and returns the record as it then is. An error of `edit` ends it; if `edit`
// returns false, nothing is written.
Result<Control> changeControl(Store* store, const std::function<Result<bool>(Control*)>& edit);

// Sets `desired`, in any state of the run.
Status changeDesired(Store* store, Desired desired);

struct ControlChange {
  bool changed = false;
  Desired before = Desired::kRunning;
  Control now;
};

// Change the desired state. kUsage: to pause a run that is over, to stop a finished one, or to
// resume a finished one that has been evaluated.
Result<ControlChange> pauseRun(Store* store);
Result<ControlChange> resumeRun(Store* store);
Result<ControlChange> stopRun(Store* store);
// Adds `updates` to the run; a finished run goes on.
Result<ControlChange> extendRun(Store* store, uint64_t updates);

// Changes "spec.a.b=value" in a run; kUsage for keys that a run cannot change, with the reason and
// the remedy.
Result<std::vector<SpecChange>> setInRun(Store* store, const std::vector<std::string>& settings);

}  // namespace allot
