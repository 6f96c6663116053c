#pragma once
// The random numbers of a run: their key, and RandomStream, a sequence of draws for one purpose.
// Small values; one thread at a time. Key, purpose and index determine a RandomStream.
// allot/kernels/philox_streams.h lists all draws under a run's key.
#include <array>
#include <cstdint>

#include "allot/kernels/philox_streams.h"

// Declared, not included: worker/model uses this header, and LibTorch has other protobuf headers.
namespace allot::v1 {
class Spec;
}

namespace allot {

struct RunStreams {
  uint64_t key = 0;  // of Philox
};
// Returns the run's key: spec.seed, or, if spec.repetition is above 0, a number drawn from seed and
// repetition. Runs that differ in seed or repetition draw independently.
RunStreams runStreams(const v1::Spec& spec);

class RandomStream {
 public:
  RandomStream(const RunStreams& run, Purpose purpose, uint64_t index)
      : run_(run), purpose_(purpose), index_(index) {}

  // Returns the next four words of 32 random bits. The sequence repeats after 2^32 calls.
  std::array<uint32_t, 4> words() {
    const auto low = static_cast<uint32_t>(index_), high = static_cast<uint32_t>(index_ >> 32);
    return philox(run_.key, low, high, purposeStream(purpose_), block_++);
  }
  // Returns a uniform number in [0, 1).
  double uniform() {
    const auto drawn = words();
    return uniformDouble(drawn[0], drawn[1]);
  }
  // Returns a uniform number in 0..bound-1. The bias is below bound * 2^-53.
  // Requires: bound > 0.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>(uniform() * static_cast<double>(bound));
  }

 private:
  RunStreams run_;
  Purpose purpose_;
  uint64_t index_;
  uint32_t block_ = 0;
};

}  // namespace allot
