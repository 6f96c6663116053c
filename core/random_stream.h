#pragma once
// RandomStream: an endless sequence of draws from Philox for one named purpose.
//
// (seed, purpose, index) name the stream, so that what one ticket draws never depends on what
// others drew. A small value; one thread at a time.
#include <array>
#include <cstdint>

#include "allot/kernels/philox.h"

namespace allot {

enum class Purpose : uint32_t { kSchedule = 1, kQuestions = 2, kBootstrap = 3 };

class RandomStream {
 public:
  RandomStream(uint64_t seed, Purpose purpose, uint64_t index)
      : seed_(seed), purpose_(static_cast<uint32_t>(purpose)), index_(index) {}

  // Four independent words; "endless" is 2^32 calls.
  std::array<uint32_t, 4> words() {
    return philox(seed_, block_++, purpose_, static_cast<uint32_t>(index_),
                  static_cast<uint32_t>(index_ >> 32));
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
  uint64_t seed_;
  uint32_t purpose_;
  uint64_t index_;
  uint32_t block_ = 0;
};

}  // namespace allot
