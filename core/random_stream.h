#pragma once
// What a run draws from: the key of its random numbers, and RandomStream, an endless sequence of
// draws for one named purpose.
//
// (streams, purpose, index) name a RandomStream, so that what one ticket draws never depends on
// what others drew. allot/kernels/philox_streams.h lists who else draws under the same key. Small
// values; one thread at a time.
#include <array>
#include <cstdint>

#include "allot/kernels/philox_streams.h"

// Declared alone: the model draws as well, and LibTorch brings other protobuf headers.
namespace allot::v1 {
class Spec;
}

namespace allot {

struct RunStreams {
  uint64_t key = 0;  // Philox's
};
// The key is spec.seed, or drawn from it by the number of the repetition: runs that differ in
// either are independent of each other.
RunStreams runStreams(const v1::Spec& spec);

class RandomStream {
 public:
  RandomStream(const RunStreams& run, Purpose purpose, uint64_t index)
      : run_(run), purpose_(purpose), index_(index) {}

  // Four independent words; "endless" is 2^32 calls.
  std::array<uint32_t, 4> words() {
    const auto low = static_cast<uint32_t>(index_), high = static_cast<uint32_t>(index_ >> 32);
    return philox(run_.key, low, high, purposeStream(purpose_), block_++);
  }
  // Uniform in [0, 1).
  double uniform() {
    const auto drawn = words();
    return uniformDouble(drawn[0], drawn[1]);
  }
  // Uniform in 0..bound-1; bound > 0. The bias is below bound * 2^-53.
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
