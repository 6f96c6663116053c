#pragma once
// Planted faults: stores that break one promise each. The simulation must find every one of them,
// or it would not find it in the real store either. Pure functions; any thread.
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/world.h"

namespace allot::sim {

struct Planted {
  std::string name;
  std::string promise;               // that it breaks
  std::function<OpenStore()> plant;  // for one world
};

const std::vector<Planted>& plantedFaults();
// The store as it should be.
OpenStore soundStore();

}  // namespace allot::sim
