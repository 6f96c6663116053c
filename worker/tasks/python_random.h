#pragma once
// PythonRandom: CPython's random.Random (3.11), draw for draw, for suites that have a Python twin.
//
// The same integer seed gives the same numbers, and the same calls consume the same draws. Owned by
// whoever makes it; one thread at a time. Source: CPython's Lib/random.py and the Mersenne Twister
// MT19937 of Matsumoto and Nishimura (1998), seeded from an array of 32-bit words.
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

  // In [0, 1), a multiple of 2^-53.
  double random();
  // The next `bits` random bits, 0 <= bits <= 64.
  uint64_t getrandbits(int bits);
  // In [0, n); 0 when n is 0.
  uint64_t randbelow(uint64_t n);
  // In [start, stop); needs start < stop.
  int64_t randrange(int64_t start, int64_t stop);
  // In [low, high]; needs low <= high.
  int64_t randint(int64_t low, int64_t high) { return randrange(low, high + 1); }

  // One item of a sequence that is not empty (a std::array, vector, string_view, ...).
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

  // random.choices over range(n): k indices, with replacement. Needs n > 0.
  std::vector<size_t> choices(size_t n, size_t k);
  // random.choices(range(len(weights)), weights=..., k=k). Weights: not negative, sum above 0.
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
