#pragma once
// PTX instructions by name, and functions of a step for all kernels. Device code, sm_80 and later.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/step.h"
#include "kernels/draw_thresholds.h"

namespace allot::kernels::cuda {

constexpr unsigned kAll = 0xffffffffu;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kLargest = 3.4028235e38f;

__device__ inline float minusInfinity() { return __int_as_float(0xff800000); }
__device__ inline float notANumber() { return __int_as_float(0x7fffffff); }

// Returns 2^x, within 2 units of the last place; 0 below 2^-126.
__device__ inline float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns a a_factor + b b_factor: two splits' sums, which the factors bring to a common maximum.
// Rounds a a_factor, then the fused rest, in every kernel.
__device__ inline float joined(float a, float a_factor, float b, float b_factor) {
  return __fmaf_rn(b, b_factor, __fmul_rn(a, a_factor));
}

// Returns the sum of `own` over the threads of the block before this one, and over all in `total`.
// warp_sums: [kWarps] in shared memory. Has two barriers; after it warp_sums is still read.
// Requires: all threads call it.
template <int kWarps, typename Sum>
__device__ Sum sumBefore(Sum own, int lane, int warp, Sum* warp_sums, Sum* total) {
  Sum reached = own;
  for (int i = 1; i < 32; i *= 2) {
    const Sum left = __shfl_up_sync(kAll, reached, i);
    if (lane >= i) reached += left;
  }
  __syncthreads();
  if (lane == 31) warp_sums[warp] = reached;
  __syncthreads();
  Sum passed = 0, all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) passed += warp_sums[w];
    all += warp_sums[w];
  }
  *total = all;
  return passed + reached - own;
}

__device__ inline uint32_t sharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Copies 16 bytes from global to shared memory, asynchronously.
__device__ inline void copyAsync(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
// Does the same, or writes zeros if !valid.
__device__ inline void copyAsync(uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// Hopper's L2 cache policies evict-first and evict-last, as createpolicy makes them.
constexpr uint64_t kEvictFirst = 0x12f0000000000000, kEvictLast = 0x14f0000000000000;

// Does the same. kOnce: a step reads the bytes once, so that L2 should evict them first.
template <bool kOnce>
__device__ inline void copyAsync(uint32_t shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 900
  if constexpr (kOnce) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
                 "l"(global), "r"(valid ? 16 : 0), "l"(kEvictFirst)
                 : "memory");
    return;
  }
#endif
  copyAsync(shared, global, valid);
}

// Stores data for the next kernel, for L2 to keep: a write to memory costs three times a read.
__device__ inline void storeKept(float* to, float x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(to), "f"(x), "l"(kEvictLast)
               : "memory");
#else
  *to = x;
#endif
}
__device__ inline void storeKept(uint4* to, const uint4& x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w), "l"(kEvictLast)
               : "memory");
#else
  *to = x;
#endif
}
__device__ inline void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Pending` groups of this thread's copies are pending.
template <int Pending>
__device__ inline void waitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ inline uint4 loadShared(uint32_t shared) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(shared)
               : "memory");
  return words;
}

// Loads four 8x8 matrices of 2-byte elements; lane i has the address of row i % 8 of matrix i / 8.
__device__ inline void loadMatrices(uint32_t (&to)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared)
               : "memory");
}
__device__ inline void loadTransposed(uint32_t (&to)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared)
               : "memory");
}
// Transposes an 8x8 matrix that a warp holds, two elements of a row a lane.
__device__ inline uint32_t transpose(uint32_t matrix) {
  uint32_t to;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(matrix));
  return to;
}

// Conversions and products of the cache's elements.
template <typename T>
struct ElementOf;

template <>
struct ElementOf<__nv_bfloat16> {
  // Computes c += a b, 16 x 16 times 16 x 8.
  __device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
  __device__ static float toFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
  __device__ static float2 pair(uint32_t bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  }
  // bfloat16 has float32's range: queries are not scaled.
  static constexpr bool kScalesQueries = false;
};

template <>
struct ElementOf<__half> {
  __device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static __half of(float x) { return __float2half_rn(x); }
  __device__ static float toFloat(__half x) { return __half2float(x); }
  __device__ static float2 pair(uint32_t bits) {
    __half2 both;
    memcpy(&both, &bits, sizeof both);
    return __half22float2(both);
  }
  // Queries are scaled into float16's range by a power of two.
  static constexpr bool kScalesQueries = true;
};

// Computes d = c + a b, 16 x 32 unsigned bytes times 32 x 8 signed bytes.
__device__ inline void multiplyBytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                     const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

// Returns x as a sum of two elements in one word: x rounded in the low half, the rest in the high.
template <typename T>
__device__ inline uint32_t twoTerms(float x) {
  const T first = ElementOf<T>::of(x);
  const T rest = ElementOf<T>::of(x - ElementOf<T>::toFloat(first));
  uint16_t low, high;
  memcpy(&low, &first, sizeof low);
  memcpy(&high, &rest, sizeof high);
  return static_cast<uint32_t>(high) << 16 | low;
}

// Returns two numbers as float16, the first in the low half.
__device__ inline uint32_t halves(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ inline bool isNumber(float x) { return fabsf(x) <= kLargest; }

__device__ inline void report(const Step& step, Wrong kind, int row, int kv_head) {
  atomicMin(step.space.wrong, static_cast<unsigned long long>(kind) << 56 |
                                  static_cast<unsigned long long>(row) << 24 | kv_head);
}

// Returns true if a length is below 0, or beyond the plan, the row's pages or its bias.
__device__ inline bool beyondRoom(const Step& step, int n) {
  return n < 0 || n > step.space.max_length ||
         n > static_cast<int64_t>(step.in.max_pages) << step.cache.page_shift ||
         (step.in.bias && n > step.in.bias_stride);
}

// Returns the level (kLevels) of a score in a split with that max_score.
__device__ inline float levelOf(float max_score, float score) {
  return fminf(floorf((max_score - score) * kLevelsInTwo), kLevels - 1);
}

// Waits for the end of the kernel before this one on the stream, whose writes are then visible.
// Code for architectures below ALLOT_OVERLAP_ARCH does not wait, and must not be launched early,
// whatever the GPU.
__device__ inline void waitForKernelBefore() {
#if __CUDA_ARCH__ >= ALLOT_OVERLAP_ARCH
  cudaGridDependencySynchronize();
#endif
}

// Lets the next kernel on the stream start, if it was launched early.
__device__ inline void letNextKernelIn() {
#if __CUDA_ARCH__ >= ALLOT_OVERLAP_ARCH
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The keys of a row, first .. n - 1, that the sliding window leaves. Splits begin at `base`, so
// that those of kSplitKeys are the same tiles with every window.
struct RowKeys {
  int first, n, base;
  __device__ int count() const { return n - first; }
  __device__ int span() const { return n - base; }
};
__device__ inline RowKeys keysOf(const Step& step, int n) {
  const int first = step.in.window > 0 && n > step.in.window ? n - step.in.window : 0;
  return {first, n, first & -kSplitKeys};
}
// Returns the keys of an exact row, whose splits begin at a subtile.
__device__ inline RowKeys exactKeysOf(const Step& step, int n) {
  RowKeys keys = keysOf(step, n);
  keys.base = keys.first & -kSubtileKeys;
  return keys;
}

// Returns the page of a row's key.
__device__ inline int pageOf(const Step& step, int row, int key) {
  return step.in
      .page_table[static_cast<int64_t>(row) * step.in.max_pages + (key >> step.cache.page_shift)];
}
// Returns the entry of a key in its page; the pool has fewer than 2^32. Page 0 replaces a page
// outside of the pool, which an earlier kernel has reported.
__device__ inline uint32_t entryIn(const Step& step, int kv_head, int page, int key) {
  const bool good = static_cast<uint32_t>(page) < static_cast<uint64_t>(step.cache.pages);
  const uint32_t first = static_cast<uint32_t>((good ? page : 0) * step.cache.kv_heads + kv_head)
                         << step.cache.page_shift;
  return first + (key & ((1 << step.cache.page_shift) - 1));
}
// Returns the entry of a row's key.
__device__ inline uint32_t entryOf(const Step& step, int row, int kv_head, int key) {
  return entryIn(step, kv_head, pageOf(step, row, key), key);
}

template <bool kByHead>
__device__ inline uint32_t budgetOf(const Step& step, int row, int head) {
  const bool own = kByHead && step.by_head.has_head_budgets;
  return step.in.budgets[own ? row * step.in.heads + head : row];
}

// Returns the draws that a head has the use of: its budget, or with shared draws the group's.
template <bool kByHead>
__device__ inline uint64_t drawsFor(const Step& step, int row, int head) {
  if (!step.how.shares_draws) return budgetOf<kByHead>(step, row, head);
  const int group = step.in.group;
  if (!kByHead || !step.by_head.has_head_budgets) {
    return static_cast<uint64_t>(step.in.budgets[row]) * group;
  }
  uint64_t draws = 0;
  const uint32_t* budgets = step.in.budgets + row * step.in.heads + head / group * group;
  for (int h = 0; h < group; ++h) draws += budgets[h];
  return draws;
}

// Returns the kind of a head. With budget 0 it is silent, or exact if log-sums are wanted.
template <bool kByHead>
__device__ inline HeadKind kindOf(const Step& step, int row, int head) {
  const int n = step.in.lengths[row];
  const uint32_t budget = budgetOf<kByHead>(step, row, head);
  if (beyondRoom(step, n)) return HeadKind::kBad;
  if (n == 0) return HeadKind::kSilent;
  if (budget == 0) return step.out.lse ? HeadKind::kExact : HeadKind::kSilent;
  const ChosenBy by = step.how.chosen_by;
  if (by == ChosenBy::kAdaptive || by == ChosenBy::kThreshold) return HeadKind::kSampled;
  const auto keys = static_cast<uint32_t>(keysOf(step, n).count());
  const bool enough = step.how.exact_from_all && drawsFor<kByHead>(step, row, head) >= keys;
  if (!step.how.uses_budget || enough) return HeadKind::kExact;
  if (budget > step.space.max_budget) return HeadKind::kBad;
  return by == ChosenBy::kPages ? HeadKind::kPages : HeadKind::kSampled;
}

__device__ inline int splitsOf(int keys) { return (keys + kSplitKeys - 1) / kSplitKeys; }
__device__ inline int exactSplitsOf(int keys) {
  return (keys + exactSplitKeys(keys) - 1) / exactSplitKeys(keys);
}

// Returns a split's index in the workspace's arrays.
__device__ inline int64_t splitIndex(const Step& step, int row, int head, int split) {
  return (static_cast<int64_t>(row) * step.in.heads + head) * step.space.max_splits + split;
}

// Returns the keys of one tile in a row of n (kernels::tileKeys).
constexpr int kLeastTile = 32;
__device__ inline int tileKeysOf(const Step& step, int n) {
  if (step.how.tile_keys > 0) return step.how.tile_keys;
  return n <= 1536 ? kLeastTile : n <= 3072 ? 64 : kSplitKeys;
}
// Returns how many tiles hold a row's keys.
__device__ inline int tilesOf(const RowKeys& keys, int tile_keys) {
  return (keys.n + tile_keys - 1) / tile_keys - keys.first / tile_keys;
}

// Returns the draws of one of s2anta-flash's `splits` tiles.
__device__ inline uint32_t drawsOfSplit(uint32_t budget, int splits) {
  const uint32_t share = budget / static_cast<uint32_t>(splits);
  return share > 0 ? share : 1;
}

}  // namespace allot::kernels::cuda
