#pragma once
// SmallRun: a run made in a store without processes, for tests of what reads runs: three layers if
// nothing else is said, updates of three results, some of them of older policies and from workers
// with unpleasant names.

#include "store/store.h"

namespace allot::test {

class SmallRun {
 public:
  // Creates the run with its version 0, whose evaluation is planned; the store must outlive this.
  explicit SmallRun(Store* store, bool synchronous = false, uint32_t layers = 3);
  // Of another run at one of its versions.
  SmallRun(Store* store, const v1::Origin& origin);

  void update();  // one more
  void update(int count) {
    for (int i = 0; i < count; ++i) update();
  }
  // Plans the evaluation of the present version.
  void planEvaluation();
  // Does that many of the open units.
  void evaluate(size_t units);
  void acceptEvaluations();  // all that are recorded

  const v1::Experiment& experiment() const { return spec_.experiment; }
  const RunSpec& spec() const { return spec_; }

 private:
  void begin();
  v1::EpisodeResult episode(uint64_t ticket);

  Store& store_;
  const uint32_t layers_;
  RunSpec spec_;
  uint64_t epoch_ = 0;
  std::vector<v1::PolicySnapshot> policies_;
};

// A checked experiment that SmallRun uses.
v1::Experiment smallExperiment();

}  // namespace allot::test
