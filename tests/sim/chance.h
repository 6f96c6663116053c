#pragma once
// Chance: the one source of randomness in a simulated world, so that a seed is a whole story.
//
// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix a number. One thread.
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace allot::sim {

// A 64-bit mix in which every input bit matters; also used to make scores out of names.
inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(mix(seed + 1)) {}

  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  // 0..bound-1; bound > 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
  // low..high, both included.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool hit(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  template <typename Container>
  auto& oneOf(Container& items) {
    return items[static_cast<size_t>(below(std::size(items)))];
  }

 private:
  uint64_t state_;
};

}  // namespace allot::sim
