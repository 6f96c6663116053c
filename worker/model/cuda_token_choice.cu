#include <cuda_bf16.h>

#include "worker/model/cuda_ops.h"
#include "worker/model/token_mass.h"

namespace allot::cuda_ops {
namespace {

// A block has a row and reads its logits some twenty times, each thread every 1024th of them. After
// the first time they are in the L2 cache (160 rows of 152,064 in bfloat16: 49 MB).
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kSums = 3;

__device__ float load(const float* from) { return *from; }
__device__ float load(const __nv_bfloat16* from) { return __bfloat162float(*from); }

// Returns a number that is ordered as the finite floats are; -0 as 0. The number is never 0.
__device__ uint32_t orderOf(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ float valueOf(uint32_t order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

struct Sums {
  uint64_t of[kSums] = {};
};

// Returns the block's sums to all its threads.
__device__ Sums blockSums(Sums mine) {
  __shared__ Sums sums[kWarps];
  for (int j = 0; j < kSums; ++j) {
    for (int step = 16; step > 0; step /= 2) {
      mine.of[j] += __shfl_xor_sync(~0u, mine.of[j], step);
    }
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
  __syncthreads();
  Sums all;
  for (int warp = 0; warp < kWarps; ++warp) {
    for (int j = 0; j < kSums; ++j) all.of[j] += sums[warp].of[j];
  }
  return all;
}

__device__ uint64_t blockMax(uint64_t value) {
  __shared__ uint64_t largest[kWarps];
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(~0u, value, step);
    if (other > value) value = other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) {
    if (largest[warp] > value) value = largest[warp];
  }
  return value;
}

// The tokens that are kept: all above `cut`, and the first `ties` of those at `cut`, by id.
struct Kept {
  uint32_t cut = 0;  // an order
  uint64_t ties = 0;
};

template <typename T>
struct Row {
  const T* logits;
  int size;

  __device__ uint32_t order(int i) const { return orderOf(load(logits + i)); }

  // Returns for each threshold the sum of weight(order) over the kept tokens at or above it.
  // Thresholds ascend.
  template <typename Weight>
  __device__ Sums sumsFrom(const uint32_t (&thresholds)[kSums], const Kept& kept,
                           const Weight& weight) const {
    Sums mine;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      const uint32_t here = order(i);
      if (here <= kept.cut || here < thresholds[0]) continue;
      const uint64_t w = weight(here);
      for (int j = 0; j < kSums; ++j) mine.of[j] += here >= thresholds[j] ? w : 0;
    }
    if (threadIdx.x == 0 && kept.ties > 0) {
      const uint64_t w = kept.ties * weight(kept.cut);
      for (int j = 0; j < kSums; ++j) mine.of[j] += kept.cut >= thresholds[j] ? w : 0;
    }
    return blockSums(mine);
  }

  // Returns the fewest likeliest kept tokens whose weights sum to `wanted` or more, by two bits at
  // a time.
  // Requires: `wanted` is 1 or more, and at most the sum over all kept tokens.
  template <typename Weight>
  __device__ Kept likeliest(uint64_t wanted, const Kept& kept, const Weight& weight) const {
    uint32_t cut = 0;
    for (int shift = 30; shift >= 0; shift -= 2) {
      const uint32_t thresholds[kSums] = {cut | 1u << shift, cut | 2u << shift, cut | 3u << shift};
      const Sums sums = sumsFrom(thresholds, kept, weight);
      for (int j = kSums - 1; j >= 0; --j) {
        if (sums.of[j] < wanted) continue;
        cut = thresholds[j];
        break;
      }
    }
    const uint32_t above[kSums] = {cut + 1, cut + 1, cut + 1};
    const uint64_t left = wanted - sumsFrom(above, kept, weight).of[0];
    const uint64_t each = weight(cut);
    return {cut, (left + each - 1) / each};
  }

  // Calls visit(id, mass) for the tokens of the warp's share of the row, one a lane, by ascending
  // id, until it returns true. Tokens that are not kept have mass 0. `ties`: tokens at the cut
  // before.
  template <typename Mass, typename Visit>
  __device__ void walk(const Kept& kept, uint64_t ties, const Mass& mass,
                       const Visit& visit) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int end = shareBegin(static_cast<int>(threadIdx.x) / 32 + 1);
    for (int i = shareBegin(static_cast<int>(threadIdx.x) / 32); i < end; i += 32) {
      const int id = i + lane;
      const uint32_t here = id < end ? order(id) : 0;
      const unsigned tied = __ballot_sync(~0u, id < end && here == kept.cut);
      const uint64_t rank = ties + __popc(tied & ((1u << lane) - 1));
      const bool left = here > kept.cut || (tied >> lane & 1 && rank < kept.ties);
      if (visit(id, left && id < end ? mass(here) : 0)) return;
      ties += __popc(tied);
    }
  }

  __device__ int shareBegin(int warp) const {
    const int share = ((size + kWarps - 1) / kWarps + 31) / 32 * 32;
    return min(warp * share, size);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    chooseKernel(const T* all, int vocabulary, TokenChoice choice, uint64_t seed,
                 const uint32_t* sequences, const uint32_t* steps, int32_t* tokens) {
  const Row<T> row{all + static_cast<int64_t>(blockIdx.x) * vocabulary, vocabulary};
  const int warp = static_cast<int>(threadIdx.x) / 32;

  // The likeliest, and of equals the lowest id.
  uint64_t best = 0;
  bool finite = true;
  for (int i = static_cast<int>(threadIdx.x); i < vocabulary; i += kThreads) {
    const float x = load(row.logits + i);
    finite = finite && isfinite(x);
    const uint64_t key =
        static_cast<uint64_t>(orderOf(x)) << 32 | (UINT32_MAX - static_cast<uint32_t>(i));
    if (key > best) best = key;
  }
  best = blockMax(best);
  if (!__syncthreads_and(finite)) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = -1;
    return;
  }
  if (choice.temperature <= 0) {
    if (threadIdx.x == 0) {
      tokens[blockIdx.x] = static_cast<int32_t>(UINT32_MAX - static_cast<uint32_t>(best));
    }
    return;
  }

  const float highest = valueOf(static_cast<uint32_t>(best >> 32));
  const double least = highest - choice.temperature * log(4 * kTokenMass);
  const auto mass = [&](uint32_t order) -> uint64_t {
    const float logit = valueOf(order);
    return logit < least ? 0 : tokenMass(logit, highest, choice.temperature);
  };
  Kept kept;
  if (choice.top_k > 0 && choice.top_k < vocabulary) {
    kept = row.likeliest(static_cast<uint64_t>(choice.top_k), kept,
                         [](uint32_t) -> uint64_t { return 1; });
  }
  if (choice.top_p < 1) {
    const uint32_t everything[kSums] = {0, 0, 0};
    const uint64_t total = row.sumsFrom(everything, kept, mass).of[0];
    kept = row.likeliest(nucleusMass(total, choice.top_p), kept, mass);
  }

  // Sums over the warps' shares of the row: first of tokens at the cut, then of masses.
  __shared__ uint64_t shares[kWarps];
  const auto share = [&](uint64_t mine) {
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shares[warp] = mine;
    __syncthreads();
  };
  uint64_t mine = 0;
  for (int i = row.shareBegin(warp) + static_cast<int>(threadIdx.x) % 32;
       i < row.shareBegin(warp + 1); i += 32) {
    mine += row.order(i) == kept.cut;
  }
  share(mine);
  uint64_t ties = 0;
  for (int w = 0; w < warp; ++w) ties += shares[w];
  mine = 0;
  row.walk(kept, ties, mass, [&](int, uint64_t m) {
    mine += m;
    return false;
  });
  share(mine);
  uint64_t before = 0, total = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? shares[w] : 0;
    total += shares[w];
  }
  const uint64_t drawn = drawnMass(total, seed, sequences[blockIdx.x], steps[blockIdx.x]);
  if (drawn < before || drawn >= before + shares[warp]) return;
  row.walk(kept, ties, mass, [&](int id, uint64_t m) {
    uint64_t until = m;  // with the lanes before this one
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, until, step);
      if (threadIdx.x % 32 >= static_cast<unsigned>(step)) until += other;
    }
    const bool here = drawn >= before + until - m && drawn < before + until;
    if (here) tokens[blockIdx.x] = id;
    before += __shfl_sync(~0u, until, 31);
    return __any_sync(~0u, here) != 0;
  });
}

}  // namespace

void chooseTokens(Number number, const void* logits, int rows, int vocabulary,
                  const TokenChoice& choice, uint64_t seed, const uint32_t* sequences,
                  const uint32_t* steps, int32_t* tokens, Stream stream) {
  if (number == Number::kFloat32) {
    chooseKernel<<<rows, kThreads, 0, stream>>>(static_cast<const float*>(logits), vocabulary,
                                                choice, seed, sequences, steps, tokens);
  } else {
    chooseKernel<<<rows, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(logits),
                                                vocabulary, choice, seed, sequences, steps, tokens);
  }
}

}  // namespace allot::cuda_ops
