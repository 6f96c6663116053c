#include "worker/tasks/python_random.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <numeric>

namespace allot {

PythonRandom::PythonRandom(uint64_t seed) {
  // CPython feeds the integer's 32-bit words, lowest first, without leading zero words.
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  seedFromKey(std::span(key).first(key[1] == 0 ? 1 : 2));
}

void PythonRandom::seedFromWord(uint32_t word) {
  state_[0] = word;
  for (size_t i = 1; i < kWords; ++i) {
    const uint32_t previous = state_[i - 1];
    state_[i] = 1812433253U * (previous ^ (previous >> 30)) + static_cast<uint32_t>(i);
  }
}

void PythonRandom::seedFromKey(std::span<const uint32_t> key) {
  seedFromWord(19650218U);
  size_t i = 1;
  const auto mixed = [&](uint32_t factor) {
    const uint32_t previous = state_[i - 1];
    return state_[i] ^ ((previous ^ (previous >> 30)) * factor);
  };
  const auto advance = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (size_t step = 0; step < kWords; ++step) {
    const size_t j = step % key.size();
    state_[i] = mixed(1664525U) + key[j] + static_cast<uint32_t>(j);
    advance();
  }
  for (size_t step = 0; step < kWords - 1; ++step) {
    state_[i] = mixed(1566083941U) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
  index_ = kWords;
}

void PythonRandom::refill() {
  constexpr size_t kMiddle = 397;
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7fffffffU);
    const uint32_t twist = (y & 1U) != 0 ? 0x9908b0dfU : 0U;
    state_[i] = state_[(i + kMiddle) % kWords] ^ (y >> 1) ^ twist;
  }
  index_ = 0;
}

uint32_t PythonRandom::next() {
  if (index_ == kWords) refill();
  uint32_t y = state_[index_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

double PythonRandom::random() {
  const uint32_t high = next() >> 5;  // 27 bits
  const uint32_t low = next() >> 6;   // 26 bits
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint64_t PythonRandom::getrandbits(int bits) {
  assert(bits >= 0 && bits <= 64);
  if (bits == 0) return 0;
  if (bits <= 32) return next() >> (32 - bits);
  const uint64_t low = next();
  return low | static_cast<uint64_t>(next() >> (64 - bits)) << 32;
}

uint64_t PythonRandom::randbelow(uint64_t n) {
  if (n == 0) return 0;
  const int bits = std::bit_width(n);
  uint64_t drawn = getrandbits(bits);
  while (drawn >= n) drawn = getrandbits(bits);
  return drawn;
}

int64_t PythonRandom::randrange(int64_t start, int64_t stop) {
  assert(start < stop);
  const uint64_t width = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
  return static_cast<int64_t>(static_cast<uint64_t>(start) + randbelow(width));
}

std::vector<size_t> PythonRandom::choices(size_t n, size_t k) {
  assert(n > 0);
  std::vector<size_t> chosen(k);
  const auto scale = static_cast<double>(n);
  for (size_t& index : chosen) index = static_cast<size_t>(std::floor(random() * scale));
  return chosen;
}

std::vector<size_t> PythonRandom::choices(std::span<const double> weights, size_t k) {
  assert(!weights.empty());
  std::vector<double> cumulative(weights.size());
  std::partial_sum(weights.begin(), weights.end(), cumulative.begin());
  const double total = cumulative.back();
  std::vector<size_t> chosen(k);
  for (size_t& index : chosen) {
    // bisect_right with hi = n - 1: a draw that rounds up to the total still gives the last item.
    const auto last = cumulative.end() - 1;
    const auto found = std::upper_bound(cumulative.begin(), last, random() * total);
    index = static_cast<size_t>(found - cumulative.begin());
  }
  return chosen;
}

}  // namespace allot
