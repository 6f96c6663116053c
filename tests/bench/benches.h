#pragma once
// The parts of allot-bench that take more than kernels: kernels/bench/benches.h.

namespace allot {

// Whole decode steps of a model on a GPU.
int benchModelSteps(int argc, char** argv);
// What the store and the aggregator sustain.
int benchStore(int argc, char** argv);
// Episodes a second, and where the time goes.
int benchWorker(int argc, char** argv);

}  // namespace allot
