#include "core/random_stream.h"

#include "allot/v1/experiment.pb.h"

namespace allot {

RunStreams runStreams(const v1::Spec& spec) {
  RunStreams run{spec.seed()};
  if (spec.repetition() == 0) return run;
  const auto words = RandomStream({spec.seed()}, Purpose::kRepetition, spec.repetition()).words();
  run.key = uint64_t{words[0]} << 32 | words[1];
  return run;
}

}  // namespace allot
