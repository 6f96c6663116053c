#pragma once
// Device code that writes keys and values into the cache, with the 4-bit shadow, the mean key, the
// bounds and the sums of values. Results have the bits of kernels/cpu/paged_kv.cpp, shadow.cpp and
// value_sums.cpp if meanKeyKernel's sums are exact. A position with a wrong page or number is
// reported, and its key and value are not written. A new sequence's mean key must be complete
// before its shadow is written: an append of several positions launches appendKernel, then
// meanKeyKernel, then shadowKernel.
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kAppendThreads = 128;

struct Append {  // the kernels' arguments
  void* keys;
  void* values;
  uint8_t* codes;  // null: no shadow
  float* code_scales;
  float* mean_keys;  // null: none
  int64_t pages;
  int kv_heads;
  int page_shift;
  const float* new_keys;
  const float* new_values;
  const int32_t* page_table;
  const int32_t* starts;  // [rows] position of the first new key
  int rows;
  int count;
  int max_pages;
  unsigned long long* wrong;  // the least error so far, as report() writes it
  double* value_sums;         // null: none
  void* bounds;               // null: none
};

__device__ inline void report(const Append& in, Wrong kind, int row, int kv_head) {
  atomicMin(in.wrong, static_cast<unsigned long long>(kind) << 56 |
                          static_cast<unsigned long long>(row) << 24 | kv_head);
}

// Returns the pool index of the position's vector of this KV head; -1 after reporting an error.
__device__ inline int64_t poolRow(const Append& in, int row, int kv_head, int64_t position) {
  if (position < 0 || position >= static_cast<int64_t>(in.max_pages) << in.page_shift) {
    report(in, Wrong::kLength, row, kv_head);
    return -1;
  }
  const int page =
      in.page_table[static_cast<int64_t>(row) * in.max_pages + (position >> in.page_shift)];
  if (static_cast<uint32_t>(page) >= static_cast<uint64_t>(in.pages)) {
    report(in, Wrong::kPage, row, kv_head);
    return -1;
  }
  return ((static_cast<int64_t>(page) * in.kv_heads + kv_head) << in.page_shift) +
         (position & ((1 << in.page_shift) - 1));
}

// One key or value that a warp holds; each lane has kDim / 32 consecutive elements.
template <int kDim, typename T>
struct LaneRow {
  static constexpr int kOwn = kDim / 32;
  T element[kOwn];

  // Converts this lane's floats to T. Returns false to all lanes if any is not finite in T.
  __device__ bool convert(const float* from, int lane) {
    bool good = true;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      element[i] = ElementOf<T>::of(from[lane * kOwn + i]);
      good &= isNumber(ElementOf<T>::toFloat(element[i]));
    }
    return __all_sync(kAll, good);
  }
  __device__ void store(void* pool, int64_t row, int lane) const {
    T* to = static_cast<T*>(pool) + row * kDim + lane * kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) to[i] = element[i];
  }
  __device__ void load(const void* pool, int64_t row, int lane) {
    const T* from = static_cast<const T*>(pool) + row * kDim + lane * kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) element[i] = from[i];
  }
};

// Writes the codes and the scale of the key at pool index `row` (kernels/cpu/shadow.cpp, quantise
// and pack). Halves key and mean key (null: 0), since their difference may overflow.
template <int kDim, typename T>
__device__ inline void writeShadow(const Append& in, const LaneRow<kDim, T>& key,
                                   const float* mean_key, int64_t row, int lane) {
  constexpr int kOwn = kDim / 32;
  float halves[kOwn], largest = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float x = __fmul_rn(0.5f, ElementOf<T>::toFloat(key.element[i]));
    halves[i] = __fsub_rn(x, mean_key ? __fmul_rn(0.5f, mean_key[lane * kOwn + i]) : 0.0f);
    largest = fmaxf(largest, fabsf(halves[i]));
  }
  for (int i = 16; i > 0; i /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, i));
  const bool zero = largest < 1e-30f;
  const float inverse = __fdiv_rn(7.0f, largest);
  uint32_t codes = 0;  // kOwn codes, one in each byte
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int code = zero ? 8 : static_cast<int>(rintf(__fmul_rn(halves[i], inverse))) + 8;
    codes |= static_cast<uint32_t>(code) << (8 * i);
  }
  // The 32-bit word v of a key holds elements 8v .. 8v + 3 in the low nibbles of its bytes, and
  // 8v + 4 .. 8v + 7 in the high ones.
  constexpr int kLanesOfFour = 4 / kOwn;
  if (kLanesOfFour == 2) {
    const uint32_t other = __shfl_down_sync(kAll, codes, 1);
    codes |= other << 16;
  }
  const uint32_t high = __shfl_down_sync(kAll, codes, kLanesOfFour);
  if (lane % (2 * kLanesOfFour) == 0) {
    const int v = lane / (2 * kLanesOfFour);
    uint8_t* tile = in.codes + row / kSubtileKeys * (kDim * 8);
    *reinterpret_cast<uint32_t*>(tile + v * 64 + row % kSubtileKeys * 4) = codes | high << 4;
  }
  if (lane == 0) in.code_scales[row] = zero ? 0.0f : __fmul_rn(2, __fdiv_rn(largest, 7.0f));
}

__device__ inline float* meanKeyOf(const Append& in, int row, int kv_head, int dim) {
  if (!in.mean_keys) return nullptr;
  const int page = in.page_table[static_cast<int64_t>(row) * in.max_pages];
  if (static_cast<uint32_t>(page) >= static_cast<uint64_t>(in.pages)) return nullptr;
  return in.mean_keys + (static_cast<int64_t>(page) * in.kv_heads + kv_head) * dim;
}

// Writes keys and values; with count = 1 also the shadow and, at position 0, the mean key.
template <int kDim, typename T>
__global__ void __launch_bounds__(kAppendThreads) appendKernel(const __grid_constant__ Append in) {
  waitForKernelBefore();
  letNextKernelIn();
  const int lane = threadIdx.x % 32;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kAppendThreads / 32) + threadIdx.x / 32;
  if (item >= static_cast<int64_t>(in.rows) * in.count * in.kv_heads) return;
  const int kv_head = static_cast<int>(item % in.kv_heads);
  const int i = static_cast<int>(item / in.kv_heads % in.count);
  const int row = static_cast<int>(item / in.kv_heads / in.count);
  const int64_t at = poolRow(in, row, kv_head, static_cast<int64_t>(in.starts[row]) + i);
  if (at < 0) return;
  LaneRow<kDim, T> key, value;
  const bool keys_good = key.convert(in.new_keys + item * kDim, lane);
  const bool values_good = value.convert(in.new_values + item * kDim, lane);
  if (!keys_good || !values_good) {
    if (lane == 0) report(in, keys_good ? Wrong::kValue : Wrong::kKey, row, kv_head);
    return;
  }
  key.store(in.keys, at, lane);
  value.store(in.values, at, lane);
  if (in.count > 1) return;
  float* mean_key = meanKeyOf(in, row, kv_head, kDim);
  if (mean_key && in.starts[row] == 0) {
    for (int j = 0; j < kDim / 32; ++j) {
      mean_key[lane * (kDim / 32) + j] = ElementOf<T>::toFloat(key.element[j]);
    }
  }
  if (in.codes) writeShadow(in, key, mean_key, at, lane);
}

// Writes the mean key of every row that starts at position 0. Sums are in double precision. For
// bfloat16 and float16 they are exact unless magnitudes differ by a factor of 2^20 or more.
template <int kDim, typename T>
__global__ void __launch_bounds__(1024) meanKeyKernel(const __grid_constant__ Append in) {
  constexpr int kPartialSums = 1024 / kDim;
  __shared__ double totals[kPartialSums][kDim];
  const int row = blockIdx.x / in.kv_heads, kv_head = blockIdx.x % in.kv_heads;
  if (in.starts[row] != 0) return;
  float* mean_key = meanKeyOf(in, row, kv_head, kDim);
  if (!mean_key) return;
  const int d = threadIdx.x % kDim, partial = threadIdx.x / kDim;
  double total = 0;
  for (int i = partial; i < in.count; i += kPartialSums) {
    const int64_t at = poolRow(in, row, kv_head, i);
    if (at >= 0) total += ElementOf<T>::toFloat(static_cast<const T*>(in.keys)[at * kDim + d]);
  }
  totals[partial][d] = total;
  __syncthreads();
  if (partial > 0) return;
  for (int s = 1; s < kPartialSums; ++s) total += totals[s][d];
  mean_key[d] = static_cast<float>(total / in.count);
}

template <int kDim, typename T>
__global__ void __launch_bounds__(kAppendThreads) shadowKernel(const __grid_constant__ Append in) {
  const int lane = threadIdx.x % 32;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kAppendThreads / 32) + threadIdx.x / 32;
  if (item >= static_cast<int64_t>(in.rows) * in.count * in.kv_heads) return;
  const int kv_head = static_cast<int>(item % in.kv_heads);
  const int i = static_cast<int>(item / in.kv_heads % in.count);
  const int row = static_cast<int>(item / in.kv_heads / in.count);
  const int64_t at = poolRow(in, row, kv_head, static_cast<int64_t>(in.starts[row]) + i);
  if (at < 0) return;
  LaneRow<kDim, T> key;
  key.load(in.keys, at, lane);
  writeShadow(in, key, meanKeyOf(in, row, kv_head, kDim), at, lane);
}

// Returns how many tiles of kSubtileKeys positions `count` consecutive positions touch at most.
__host__ __device__ constexpr int touchedTiles(int count) {
  return (count + kSubtileKeys - 2) / kSubtileKeys + 1;
}

// Writes PagedKv::bounds of the new positions' tiles, one warp per tile. Runs after appendKernel.
template <int kDim, typename T>
__global__ void __launch_bounds__(kAppendThreads) boundsKernel(const __grid_constant__ Append in) {
  constexpr int kOwn = kDim / 32;
  const int lane = threadIdx.x % 32, tiles = touchedTiles(in.count);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kAppendThreads / 32) + threadIdx.x / 32;
  if (item >= static_cast<int64_t>(in.rows) * in.kv_heads * tiles) return;
  const int tile = static_cast<int>(item % tiles);
  const int kv_head = static_cast<int>(item / tiles % in.kv_heads);
  const int row = static_cast<int>(item / tiles / in.kv_heads);
  const int64_t start = in.starts[row], end = start + in.count;
  const int64_t first = (start & -kSubtileKeys) + tile * kSubtileKeys;
  const int64_t from = max(first, start), to = min(first + kSubtileKeys, end);
  if (from >= to) return;
  const int64_t at = poolRow(in, row, kv_head, from);  // a tile is in one page
  if (at < 0) return;
  T* bounds = static_cast<T*>(in.bounds) + at / kSubtileKeys * (2 * kDim) + lane * kOwn;
  T low[kOwn], high[kOwn];
  // The first key of a tile overwrites the bounds of the page's previous user: they are not loaded.
#pragma unroll
  for (int i = 0; i < kOwn && from % kSubtileKeys != 0; ++i) {
    low[i] = bounds[i];
    high[i] = bounds[kDim + i];
  }
  for (int64_t j = from; j < to; ++j) {
    LaneRow<kDim, T> key;
    key.load(in.keys, at + (j - from), lane);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float x = ElementOf<T>::toFloat(key.element[i]);
      if (j % kSubtileKeys == 0 || x < ElementOf<T>::toFloat(low[i])) low[i] = key.element[i];
      if (j % kSubtileKeys == 0 || x > ElementOf<T>::toFloat(high[i])) high[i] = key.element[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    bounds[i] = low[i];
    bounds[kDim + i] = high[i];
  }
}

// Writes PagedKv::value_sums as kernels/cpu/value_sums.cpp does: one block per row and KV head, one
// thread per channel, which adds positions in order. Runs after appendKernel.
template <int kDim, typename T>
__global__ void __launch_bounds__(kDim) valueSumsKernel(const __grid_constant__ Append in) {
  const int row = blockIdx.x / in.kv_heads, kv_head = blockIdx.x % in.kv_heads, d = threadIdx.x;
  const int64_t start = in.starts[row], end = start + in.count;
  const auto sumsAt = [&](int64_t position, int64_t at) {
    return in.value_sums + ((at >> in.page_shift) * 2 + position % 2) * kDim + d;
  };
  double sum = 0;
  if (start > 0) {
    const int64_t before = poolRow(in, row, kv_head, start - 1);
    if (before < 0) return;
    sum = *sumsAt(start - 1, before);
  }
#pragma unroll 4
  for (int64_t j = start; j < end; ++j) {
    const int64_t at = poolRow(in, row, kv_head, j);
    if (at < 0) return;
    sum += ElementOf<T>::toFloat(static_cast<const T*>(in.values)[at * kDim + d]);
    const bool last = (j + 1 & (1 << in.page_shift) - 1) == 0;
    if (j >= end - 2 || last) *sumsAt(j, at) = sum;
  }
}

// Arguments of meansKernel, which computes kernels::meanValues.
struct Means {
  const double* value_sums;
  int64_t pages;
  int kv_heads;
  int page_shift;
  const int32_t* page_table;
  const int32_t* lengths;
  int max_pages;
  float* means;
};

template <int kDim>
__global__ void __launch_bounds__(kDim) meansKernel(const __grid_constant__ Means in) {
  const int row = blockIdx.x / in.kv_heads, kv_head = blockIdx.x % in.kv_heads, d = threadIdx.x;
  const int n = in.lengths[row];
  float mean = 0;
  // A wrong length or page gives 0 here; the decode step of that row reports the error.
  if (n > 0 && n <= static_cast<int64_t>(in.max_pages) << in.page_shift) {
    const int page =
        in.page_table[static_cast<int64_t>(row) * in.max_pages + (n - 1 >> in.page_shift)];
    if (static_cast<uint32_t>(page) < static_cast<uint64_t>(in.pages)) {
      const int64_t at = (static_cast<int64_t>(page) * in.kv_heads + kv_head) * 2 + (n - 1) % 2;
      mean = static_cast<float>(in.value_sums[at * kDim + d] / n);
    }
  }
  in.means[static_cast<int64_t>(blockIdx.x) * kDim + d] = mean;
}

}  // namespace allot::kernels::cuda
