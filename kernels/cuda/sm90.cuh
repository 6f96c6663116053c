#pragma once
// Hopper's instructions by name: barriers in shared memory, copies by tensor maps, register
// budgets, products of a warp group. Device code, for sm_90a alone.
#include <cuda.h>

#include <type_traits>

#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

// A barrier in shared memory (mbarrier). A phase ends when all its arrivals have come and the bytes
// that they announced have been copied. Phases are counted from 0; a wait names the phase's parity.
struct SharedBarrier {
  uint64_t word;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

  // Requires: one thread calls it, and fenceBarriers() and a barrier of the block follow.
  __device__ void start(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(this)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(this))
                 : "memory");
  }
  // Arrives, and announces the bytes of copies that complete on this barrier.
  __device__ void arriveWithBytes(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     sharedAddress(this)),
                 "r"(bytes)
                 : "memory");
  }
  // Waits until the phase of this parity has ended.
  // Requires: the phase after it has not ended.
  __device__ void wait(uint32_t parity) const {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again;\n"
        "}\n" ::"r"(sharedAddress(this)),
        "r"(parity)
        : "memory");
  }
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Makes started barriers visible to the copy engine.
__device__ inline void fenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Orders this thread's writes to shared memory before the reads of products and copy engine that
// follow a barrier.
__device__ inline void fenceProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Returns true in one lane of the warp.
// Requires: all lanes call it.
__device__ inline bool isElected() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// Starts the copy of a box of a tensor of three dimensions to shared memory. Elements outside the
// tensor become zeros. `x` is the coordinate of the fastest dimension.
__device__ inline void copyBox(uint32_t shared, const CUtensorMap& map, int x, int y, int z,
                               SharedBarrier* done) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(sharedAddress(done))
      : "memory");
}
// The same for a tensor of five dimensions, from 0 in the first three.
__device__ inline void copyBox(uint32_t shared, const CUtensorMap& map, int fourth, int fifth,
                               SharedBarrier* done) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%2, %2, %3, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(0), "r"(fourth), "r"(fifth), "r"(sharedAddress(done))
      : "memory");
}

// Starts the copy of neighbouring bytes to shared memory.
// Requires: both addresses and `bytes` are multiples of 16.
__device__ inline void copyBulk(void* shared, const void* global, uint32_t bytes,
                                SharedBarrier* done) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(sharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(sharedAddress(done))
      : "memory");
}

// Change the warp group's registers a thread.
// Requires: all four warps call it.
template <int Registers>
__device__ inline void releaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void acquireRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Named barriers of `threads` threads; number 0 is __syncthreads().
__device__ inline void syncAt(int barrier, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arriveAt(int barrier, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Return the low word of wgmma's descriptor of a tile, which is all that a loop changes, and the
// descriptor. Lines have 128 bytes in wgmma's swizzle, eight follow each other. An address 16 bytes
// further is a low word of 1 more. `leading`: bytes to the next columns; not used for keys.
__device__ inline uint32_t lowWord(uint32_t address, uint32_t leading = 16) {
  return address >> 4 | leading >> 4 << 16;
}
__device__ inline uint64_t tileOf(uint32_t low_word) {
  return uint64_t{1u << 30 | 1024 >> 4} << 32 | low_word;
}

// Orders the warpgroup's register and shared memory accesses before its next wgmma.mma_async.
__device__ inline void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes the group of the wgmma.mma_async issued since the last commit.
__device__ inline void wgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `N` committed groups are pending. With N = 0 all sums are in registers.
template <int N>
__device__ inline void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving uses of registers across a product in flight.
template <typename T, int N>
__device__ inline void hold(T (&x)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        asm volatile("" : "+f"(x[n][i])::"memory");
      } else {
        asm volatile("" : "+r"(x[n][i])::"memory");
      }
    }
  }
}

#define ALLOT_4(x, n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define ALLOT_16(x, n) ALLOT_4(x, n), ALLOT_4(x, n + 1), ALLOT_4(x, n + 2), ALLOT_4(x, n + 3)
#define ALLOT_SUMS_32                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define ALLOT_SUMS_64                                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
  "%56, %57, %58, %59, %60, %61, %62, %63}"

// Starts c = (fresh ? 0 : c) + a b: 64 queries x 16 channels times 16 channels x 128 keys, a and b
// by descriptor.
__device__ inline void scoreTile(float (&c)[16][4], uint64_t a, uint64_t b, bool fresh) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ALLOT_SUMS_64
      ", %64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : ALLOT_16(c, 0), ALLOT_16(c, 4), ALLOT_16(c, 8), ALLOT_16(c, 12)
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(fresh)));
}
// The same for 64 keys.
__device__ inline void scoreTile(float (&c)[8][4], uint64_t a, uint64_t b, bool fresh) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ALLOT_SUMS_32
      ", %32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : ALLOT_16(c, 0), ALLOT_16(c, 4)
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(fresh)));
}
// Starts c += a b: 64 queries x 16 keys times 16 keys x 128 channels, a in registers.
__device__ inline void addTile(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ALLOT_SUMS_64
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : ALLOT_16(c, 0), ALLOT_16(c, 4), ALLOT_16(c, 8), ALLOT_16(c, 12)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// The same for 64 channels.
__device__ inline void addTile(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ALLOT_SUMS_32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
               : ALLOT_16(c, 0), ALLOT_16(c, 4)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// Starts c = (fresh ? 0 : c) + a b: 64 x 32 signed bytes times 32 x 128, a and b by descriptor.
#define ALLOT_4R(x, n) "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])
#define ALLOT_16R(x, n) ALLOT_4R(x, n), ALLOT_4R(x, n + 1), ALLOT_4R(x, n + 2), ALLOT_4R(x, n + 3)
__device__ inline void codeTile(int (&c)[16][4], uint64_t a, uint64_t b, bool fresh) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 " ALLOT_SUMS_64
      ", %64, %65, p;\n"
      "}\n"
      : ALLOT_16R(c, 0), ALLOT_16R(c, 4), ALLOT_16R(c, 8), ALLOT_16R(c, 12)
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(fresh)));
}
#undef ALLOT_16R
#undef ALLOT_4R
#undef ALLOT_SUMS_64
#undef ALLOT_SUMS_32
#undef ALLOT_16
#undef ALLOT_4

#endif

}  // namespace allot::kernels::cuda
