#pragma once
// The common part of combining a query head from drawn or chosen keys (step.h): one block, which
// gathers entries of the pool. Device code.
#include "kernels/cuda/head_splits.cuh"

namespace allot::kernels::cuda {

// kRescores: gathered entries get exact scores, since a shadow or bounds chose them.
template <int kDim, typename T, bool kRescores, bool kByHead, int kThreads = kCombineThreads>
class HeadBlock : protected HeadSplits<kDim, T, kByHead, kThreads> {
 protected:
  using Splits = HeadSplits<kDim, T, kByHead, kThreads>;
  using Splits::kShare, Splits::kOwnWarps;
  using Splits::row_, Splits::kv_head_;
  using Splits::step_, Splits::shared_, Splits::tid_, Splits::lane_, Splits::warp_;
  static constexpr int kLanes = kDim / 8;       // that read one entry together
  static constexpr int kEntries = 32 / kLanes;  // a warp reads at once

  __device__ HeadBlock(const Step& step, HeadShared<kDim>& shared, uint8_t* memory)
      : Splits(step, shared, memory) {
    if constexpr (kRescores) {
      const float* from = step_.in.queries + this->headIndex() * kDim + lane_ % kLanes * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) query_[i] = from[i];
    }
  }

  __device__ uint32_t entryOf(int key) const { return cuda::entryOf(step_, row_, kv_head_, key); }

  __device__ uint4 loadEntry(const void* pool, uint32_t entry) const {
    return __ldg(reinterpret_cast<const uint4*>(static_cast<const T*>(pool) +
                                                static_cast<int64_t>(entry) * kDim) +
                 lane_ % kLanes);
  }

  template <typename Body>
  __device__ static void unpack(const uint4& eight, Body body) {
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = ElementOf<T>::pair(words[i]);
      body(2 * i, two.x);
      body(2 * i + 1, two.y);
    }
  }

  // Sums over gathered entries: of e = 2^(s' - top), and of e v for the thread's eight channels.
  // For a pilot also of e^2 and |e v|^2.
  struct Sums {
    float top = kNoKeys;
    double denominator = 0, squares = 0, norms = 0;
    float poison = 0;  // NaN once a score was not finite
    float out[8] = {};
    float value = 0;  // after finish(): of channel tid_

    // Makes the sums relative to `to`, a score of at least `top`.
    __device__ void raise(float to) {
      const float factor = power2(top - to);
      const double square = static_cast<double>(factor) * factor;
      top = to;
      denominator *= factor;
      squares *= square;
      norms *= square;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] *= factor;
    }
  };

  // Adds a warp's entries. Lane from + i has entry i < count, as `entry` its pool index and as
  // `known` its s' or, with kRescores, the number to add to the exact s'. Lanes after these, up to
  // a whole round, have any entry and -infinity, so that loads are unconditional and all in flight
  // at once. All lanes of an entry call used(i, s') together, also for some i >= count.
  template <int kAhead, bool kPilot, typename Used>
  __device__ void gather(int count, uint32_t entry, float known, Sums* sums, Used used,
                         int from = 0) const {
#pragma unroll 1
    for (int first = 0; first < count; first += kEntries * kAhead) {
      uint4 keys[kRescores ? kAhead : 1], values[kAhead];
      float s[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int r = from + first + i * kEntries + lane_ / kLanes;
        const uint32_t at = __shfl_sync(kAll, entry, r);
        s[i] = __shfl_sync(kAll, known, r);
        if constexpr (kRescores) keys[i] = loadEntry(step_.cache.keys, at);
        values[i] = loadEntry(step_.cache.values, at);
      }
      if constexpr (kRescores) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          float dot = 0;
          unpack(keys[i], [&](int j, float x) { dot += query_[j] * x; });
#pragma unroll
          for (int apart = kLanes / 2; apart > 0; apart /= 2) {
            dot += __shfl_xor_sync(kAll, dot, apart);
          }
          const float score = step_.in.scale * dot;
          sums->poison = fmaf(score, 0.0f, sums->poison);
          s[i] = fmaf(score, kLog2E, s[i]);
        }
      }
      float top = sums->top;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        used(first + i * kEntries + lane_ / kLanes, s[i]);
        top = fmaxf(top, s[i]);
      }
#pragma unroll
      for (int apart = kLanes; apart < 32; apart *= 2) {
        top = fmaxf(top, __shfl_xor_sync(kAll, top, apart));
      }
      sums->raise(top);
      float denominator = 0, squares = 0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float e = power2(s[i] - top);
        denominator += e;
        float norm = 0;
        unpack(values[i], [&](int j, float x) {
          sums->out[j] += e * x;
          if (kPilot) norm += x * x;
        });
        if (kPilot) {
          squares += e * e;
          sums->norms += static_cast<double>(e * e) * norm;
        }
      }
      sums->denominator += denominator;
      if (kPilot) sums->squares += squares;
    }
  }

  // Adds the values of a warp's entries to out. Lanes have the entries as for gather().
  template <int kAhead>
  __device__ void gatherEqual(int count, uint32_t entry, float (&out)[8], int from = 0) const {
#pragma unroll 1
    for (int first = 0; first < count; first += kEntries * kAhead) {
      uint4 values[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int r = from + first + i * kEntries + lane_ / kLanes;
        values[i] = loadEntry(step_.cache.values, __shfl_sync(kAll, entry, r));
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float weight = first + i * kEntries + lane_ / kLanes < count ? 1.0f : 0.0f;
        unpack(values[i], [&](int j, float x) { out[j] += weight * x; });
      }
    }
  }

  // Adds up the sums of all warps in order into sums[0]. With kRescores reports a score that was
  // not finite.
  template <bool kPilot>
  __device__ void finish(Sums* sums) {
    float poison = 0, top = kNoKeys;
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      poison += sums[s].poison;
      top = fmaxf(top, sums[s].top);
    }
    if (kRescores && __any_sync(kAll, poison != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, row_, kv_head_);
    }
    top = this->largest(top);
    // All lanes of an entry have its weight: one of them counts.
    const bool counts = lane_ % kLanes == 0;
    double denominator[kShare], squares[kShare], norms[kShare];
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      sums[s].raise(top);
      denominator[s] = counts ? sums[s].denominator : 0.0;
      squares[s] = counts ? sums[s].squares : 0.0;
      norms[s] = sums[s].norms;
    }
    sums->denominator = this->sum(denominator);
    if (kPilot) {
      sums->squares = this->sum(squares);
      sums->norms = this->sum(norms);
    }
    sums->value = sumEntries(sums);
  }

  // Returns to thread d the sum of channel d over lanes and warps, in order.
  __device__ float sumEntries(Sums* sums) {
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        for (int apart = kLanes; apart < 32; apart *= 2) {
          sums[s].out[i] += __shfl_xor_sync(kAll, sums[s].out[i], apart);
        }
      }
    }
    __syncthreads();
    if (lane_ < kLanes) {
#pragma unroll
      for (int s = 0; s < kShare; ++s) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          shared_.sums[warp_ + s * kOwnWarps][lane_ * 8 + i] = sums[s].out[i];
        }
      }
    }
    __syncthreads();
    float total = 0;
    for (int w = 0; tid_ < kDim && w < kCombineWarps; ++w) total += shared_.sums[w][tid_];
    return total;
  }

  float query_[kRescores ? 8 : 1];  // this lane's channels
};

}  // namespace allot::kernels::cuda
