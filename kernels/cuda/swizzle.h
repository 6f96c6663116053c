#pragma once
// Layouts of tiles, codes and scores in the split kernel's shared memory. A warp's copies, matrix
// loads, reads of codes and writes of scores have no bank conflicts. Pure arithmetic on offsets,
// host and device; tests/kernels/swizzle_test.cpp checks these accesses without a GPU. Private to
// kernels/cuda.
//
// Shared memory has 32 banks of 4 bytes. Accesses of 16 bytes a lane are served for eight lanes at
// a time, and matrix loads for eight matrix rows at a time. Both are free of conflicts if the eight
// 16-byte chunks differ modulo 8.
#include <cstdint>

namespace allot::kernels::cuda {

// XORs the kBits bits from kTo on with the bits kDistance higher: CuTe's Swizzle<kBits, kTo,
// kDistance>. It is its own inverse, and linear: of(a ^ b) = of(a) ^ of(b).
template <int kBits, int kTo, int kDistance>
struct Swizzle {
  static_assert(kDistance >= kBits);  // the bits that are read are not written
  static constexpr uint32_t kMask = ((1u << kBits) - 1) << kTo;
  static constexpr uint32_t of(uint32_t offset) { return offset ^ (offset >> kDistance & kMask); }
};

// A tile of 16 keys or values of kDim 16-bit elements, one matrix row each. The numbers of the
// 16-byte chunks of matrix row r are XORed with r modulo 8. Tiles begin at multiples of 256 bytes,
// so that an address has the chunk bits of its offset in the tile.
template <int kDim>
struct TileLayout {
  static_assert(kDim == 64 || kDim == 128);
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kChunks = kRowBytes / 16;    // of a matrix row
  static constexpr int kRowsAtOnce = 32 / kChunks;  // that a warp copies, 512 bytes
  static constexpr int kBytes = 16 * kRowBytes;
  using Pattern = Swizzle<3, 4, kDim == 64 ? 3 : 4>;

  static constexpr uint32_t at(int row, int chunk) {
    return Pattern::of(static_cast<uint32_t>(row * kRowBytes + chunk * 16));
  }
  // Returns the address of at(row, chunk + chunks), from that of at(row, chunk).
  // Requires: chunk and chunks have no bit in common.
  static constexpr uint32_t along(uint32_t address, int chunks) {
    return address ^ static_cast<uint32_t>(chunks << 4);
  }
  // Returns the address of at(row + times * kRowsAtOnce, chunk), from that of at(row, chunk).
  // Requires: row < kRowsAtOnce.
  static constexpr uint32_t down(uint32_t address, int times) {
    return (address ^ static_cast<uint32_t>((kRowsAtOnce * times & 7) << 4)) +
           static_cast<uint32_t>(times * 512);
  }

  // Return a lane's offsets: of the first chunk that it copies; of its matrix row in a load of keys
  // as A (m16n8k16), channels 0 to 15; and in a transposed load of values.
  static constexpr uint32_t copiedBy(int lane) { return at(lane / kChunks, lane % kChunks); }
  static constexpr uint32_t keysOf(int lane) { return at((lane & 7) + (lane & 8), lane >> 4); }
  static constexpr uint32_t valuesOf(int lane) {
    return at((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
  }
};

// The 4-bit codes of 16 keys as they lie in the cache: chunk 4 p + i holds channels 8 p .. 8 p + 7
// of keys 4 i .. 4 i + 3. Copies to shared memory change one bit of a chunk's number, which frees
// reads by (keys, channels) of conflicts. Copies in other orders take eight times as long.
template <int kDim>
struct CodeLayout {
  static constexpr int kBytes = kDim * 8;
  using Pattern = Swizzle<1, 5, 2>;

  // Returns the offset of the first chunk that a lane copies; its next ones are 512 bytes on.
  static constexpr uint32_t copiedBy(int lane) {
    return Pattern::of(static_cast<uint32_t>(lane * 16));
  }
  // Returns the offset of channels 8 t .. 8 t + 7 of keys 4 (g % 4) .. + 3 of tile g / 4. Channels
  // 8 (t + 4 v) are 256 v bytes on.
  static constexpr uint32_t readBy(int g, int t) {
    return static_cast<uint32_t>(g / 4 * kBytes) +
           Pattern::of(static_cast<uint32_t>((t * 4 + g % 4) * 16));
  }
};

// float32 scores of a split, one line for each query head of a head group. A warp writes four lines
// at once: neighbours with four heads, every second line with more. Eight or four floats of padding
// put the four lines into different banks; one is ScoreScratch::note().
template <int kKeys, int kHeadGroup>
struct ScoreLayout {
  static constexpr int kLineBytes = (kKeys + (kHeadGroup == 4 ? 8 : 4)) * 4;
  static constexpr uint32_t at(int head, int key) {
    return static_cast<uint32_t>(head * kLineBytes + key * 4);
  }
};

}  // namespace allot::kernels::cuda
