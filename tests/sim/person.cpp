// The person at the command line.
#include <algorithm>

#include "tests/sim/bodies.h"
#include "tests/sim/faulty_store.h"

namespace allot::sim {
namespace {

// Changes a copy of the control; false: there is nothing to change.
using Change = std::function<bool(Control&)>;

// As the CLI does: read, change, write unless somebody else has, and then again. Like a CLI it may
// be killed at any moment, and then the person asks again.
void order(World& world, Process& process, const Change& change) {
  while (true) {
    bool done = false;
    try {
      FaultyStore store(&world, &process);
      auto control = store.readControl();
      if (control && *control) {
        Control next = **control;
        if (!change(next)) return;
        const auto changed = store.changeControl(next);
        if (!changed && changed.error().code != ErrorCode::kUnavailable) {
          return world.violate("an order was refused: " + changed.error().message);
        }
        done = changed && *changed;
      }
    } catch (const Killed&) {
      done = false;
    }
    if (process.doomed) throw Killed{};
    if (done) return;
    world.sleep(world.chance().between(100, 1'000));
  }
}

void setDesired(World& world, Process& process, Desired desired) {
  order(world, process, [desired](Control& control) {
    if (control.desired == Desired::kFinished || control.desired == desired) return false;
    control.desired = desired;
    return true;
  });
}

// Another value of a setting that may change while the run goes on.
void changeSetting(World& world, Process& process) {
  Chance& chance = world.chance();
  const bool synchronous = world.scenario().run.synchronous;
  const uint64_t which = chance.below(5);
  const auto number = static_cast<uint32_t>(chance.between(2, 7));
  order(world, process, [which, number, synchronous](Control& control) {
    v1::Spec& spec = *control.experiment.mutable_spec();
    v1::Staleness& staleness = *spec.mutable_staleness();
    if (which == 0) spec.mutable_update()->set_max_updates(number);
    if (which == 1 && !synchronous) spec.mutable_update()->set_episodes_per_update(number);
    if (which == 2) spec.mutable_update()->set_learning_rate(0.1 * number);
    if (which == 3) {
      staleness.set_mode(number < 4 ? "drop" : number < 6 ? "truncated-is" : "none");
      staleness.set_max_lag(number % 3);
    }
    if (which == 4) staleness.set_rho_bar(0.5 * number);
    return control.desired != Desired::kFinished;
  });
}

void extend(World& world, Process& process) {
  bool extended = false;
  while (!extended) {
    order(world, process, [&extended](Control& control) {
      if (control.desired != Desired::kFinished) return false;
      v1::Update& update = *control.experiment.mutable_spec()->mutable_update();
      update.set_max_updates(update.max_updates() + 2);
      control.desired = Desired::kRunning;
      extended = true;
      return true;
    });
    if (!extended) world.sleep(2'000);
  }
}

}  // namespace

void person(World& world, Process& process) {
  Chance& chance = world.chance();
  std::vector<uint64_t> times;
  for (size_t i = 0; i < world.scenario().orders; ++i) {
    times.push_back(chance.below(world.scenario().calm_ms));
  }
  std::sort(times.begin(), times.end());
  for (uint64_t time : times) {
    world.sleep(time > world.now() ? time - world.now() : 0);
    const uint64_t what = chance.below(6);
    if (what < 2) {
      setDesired(world, process, what == 0 ? Desired::kPaused : Desired::kStopped);
      world.sleep(chance.between(500, 20'000));
      setDesired(world, process, Desired::kRunning);
    } else {
      changeSetting(world, process);
    }
  }
  if (world.scenario().extend) extend(world, process);
}

}  // namespace allot::sim
