#pragma once
// Bodies: what each kind of process does, as the programs' main functions do it. Each runs in a
// fiber of the world and ends by returning or by Killed.
#include "tests/sim/world.h"

namespace allot::sim {

void workerBody(World& world, Process& process);
void aggregatorBody(World& world, Process& process);
// Gives scenario().orders orders while the run goes on: pause, stop, changed settings.
void person(World& world, Process& process);
// Writes into the store past its checks.
void stranger(World& world);
// Kills, stops and scales processes until the faults end.
void gremlin(World& world);
// Notes when the server's clock jumps, and lets processes die where the machine falls over.
void clockSetter(World& world);

}  // namespace allot::sim
