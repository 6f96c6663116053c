#pragma once
// PythonRandom: CPython's random.Random (3.11), draw for draw, for suites that also exist in
// Python. One thread at a time; owned by its creator.
//
// Equal integer seeds give equal numbers, and equal calls consume equal draws. Source: CPython's
// Lib/random.py and the Mersenne Twister MT19937 of Matsumoto and Nishimura (1998), seeded from an
// array of 32-bit words.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace allot {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // Returns a multiple of 2^-53 in [0, 1).
  double random();
  // Returns the next `bits` random bits.
  // Requires: 0 <= bits <= 64.
  uint64_t getrandbits(int bits);
  // Returns a number in [0, n); 0 if n is 0.
  uint64_t randbelow(uint64_t n);
  // Returns a number in [start, stop).
  // Requires: start < stop.
  int64_t randrange(int64_t start, int64_t stop);
  // Returns a number in [low, high].
  // Requires: low <= high.
  int64_t randint(int64_t low, int64_t high) { return randrange(low, high + 1); }

  // Returns one item of a sequence (a std::array, vector, string_view, ...).
  // Requires: items is not empty.
  template <typename Sequence>
  const auto& choice(const Sequence& items) {
    return items[static_cast<size_t>(randbelow(items.size()))];
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[static_cast<size_t>(randbelow(i + 1))]);
    }
  }

  // Returns k indices with replacement: random.choices over range(n).
  // Requires: n > 0.
  std::vector<size_t> choices(size_t n, size_t k);
  // Returns random.choices(range(len(weights)), weights=..., k=k).
  // Requires: weights are not negative, and their sum is above 0.
  std::vector<size_t> choices(std::span<const double> weights, size_t k);

 private:
  static constexpr size_t kWords = 624;

  void seedFromWord(uint32_t word);
  void seedFromKey(std::span<const uint32_t> key);
  void refill();
  uint32_t next();

  std::array<uint32_t, kWords> state_;
  size_t index_ = kWords;
};

}  // namespace allot
