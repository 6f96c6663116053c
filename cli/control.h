#pragma once
// Changing a run's control record: pause, resume, stop, extend, set. Each reads the record, decides
// whether the change makes sense, and writes it unless somebody else was faster. One thread.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/spec_change.h"
#include "store/store.h"

namespace allot {

// Repeats read, `edit`, write until nobody interferes; what was written. `edit` refuses with its
// error; false: nothing is to be changed.
Result<Control> changeControl(Store* store, const std::function<Result<bool>(Control*)>& edit);

// Sets `desired`, whatever it was.
Status changeDesired(Store* store, Desired desired);

struct ControlChange {
  bool changed = false;
  Desired before = Desired::kRunning;
  Control now;
};

// kUsage where it makes no sense: to pause or stop a finished run, to resume one, ...
Result<ControlChange> pauseRun(Store* store);
Result<ControlChange> resumeRun(Store* store);
Result<ControlChange> stopRun(Store* store);
// `updates` more; a finished run goes on.
Result<ControlChange> extendRun(Store* store, uint64_t updates);

// "spec.a.b=value"; kUsage for what a run cannot change, with the reason and the mend.
Result<std::vector<SpecChange>> setInRun(Store* store, const std::vector<std::string>& settings);

}  // namespace allot
