#pragma once
// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011, "Parallel random numbers:
// as easy as 1, 2, 3"). A pure function of (key, counter): a draw does not depend on batch, thread,
// worker or order of replay. Host and device, any thread, no dependency. This is the project's only
// copy; core/ draws schedules with it, too.
#include <array>
#include <cstdint>

#if defined(__CUDACC__)
#define ALLOT_HOST_DEVICE __host__ __device__
#else
#define ALLOT_HOST_DEVICE
#endif

namespace allot {

// Returns four independent 32-bit words for (key, counter).
ALLOT_HOST_DEVICE inline std::array<uint32_t, 4> philox(uint64_t key, uint32_t c0, uint32_t c1,
                                                        uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Returns a number of [0, 1) on a grid of 2^-53.
ALLOT_HOST_DEVICE inline double uniformDouble(uint32_t high, uint32_t low) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1.0p-53;
}

}  // namespace allot
