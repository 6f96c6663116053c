#pragma once
// bernoulli's queries (kernels/cpu/bernoulli.h), made before the split kernel: the CPU's to the
// bit. Device code, one block a row and KV head, one thread a channel.
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

template <int kDim>
struct FeatureShared {
  double largest[kDim / 32];
  uint32_t counts[kDim / 32];
};

template <int kDim>
class FeatureBlock {
 public:
  __device__ FeatureBlock(const Step& step, FeatureShared<kDim>& shared)
      : step_(step),
        shared_(shared),
        channel_(threadIdx.x),
        row_(blockIdx.x / step.cache.kv_heads),
        kv_head_(blockIdx.x % step.cache.kv_heads),
        group_(step.in.group) {}

  __device__ void run() {
    bool read = false, scored = false;  // a head with scores reads the channel; there is one
    const auto see = [&](int h, bool own) {
      const HeadKind kind = kindOf<true>(step_, row_, kv_head_ * group_ + h);
      if (kind != HeadKind::kExact && kind != HeadKind::kSampled) return;
      scored = true;
      read |= own;
    };
    if (step_.how.group_features) {
      const bool own = drawOf(0, group_, kGroupFeatureBlocks);
      for (int h = 0; h < group_; ++h) see(h, own);
    } else {
      for (int h = 0; h < group_; ++h) see(h, drawOf(h, 1, kFeatureBlocks));
    }
    const uint32_t together = count(read && scored);
    if (channel_ == 0) {
      step_.space.group_features[row_ * step_.cache.kv_heads + kv_head_] = together;
    }
  }

 private:
  __device__ int64_t headAt(int h) const {
    return static_cast<int64_t>(row_) * step_.in.heads + kv_head_ * group_ + h;
  }

  // Draws one set of hits for `heads` heads from `first` on. Writes their queries and features.
  // Returns true if the channel is read.
  __device__ bool drawOf(int first, int heads, uint32_t first_block) const {
    const float* queries = step_.in.queries + headAt(first) * kDim + channel_;
    double mean = 0;
    for (int h = 0; h < heads; ++h) mean += fabs(static_cast<double>(queries[h * kDim]));
    mean /= heads;
    const double most = largest(mean);
    const uint32_t n = mean > 0 ? hits(mean / most, first, first_block) : 0;
    // The split kernel reports a query that is not a number.
    const bool number = mean <= 1e300;
    const double factor = n > 0 ? most / mean * n / step_.how.feature_samples : 0.0;
    for (int h = 0; h < heads; ++h) {
      const float q = queries[h * kDim];
      step_.space.queries[headAt(first + h) * kDim + channel_] =
          number ? static_cast<float>(__dmul_rn(q, factor)) : notANumber();
    }
    const uint32_t features = count(n > 0);
    if (channel_ == 0) {
      for (int h = 0; h < heads; ++h) step_.space.features[headAt(first + h)] = features;
    }
    // If heads draw separately, a number that was rounded to 0 is not read.
    return n > 0 && (heads > 1 || step_.how.group_features ||
                     static_cast<float>(__dmul_rn(queries[0], factor)) != 0);
  }

  __device__ double uniform(uint32_t index, int head, uint32_t first_block) const {
    const auto words =
        philox(step_.in.seed, step_.in.sequences[row_], step_.in.steps[row_],
               attentionStream(step_.in.layer, static_cast<uint32_t>(kv_head_ * group_ + head)),
               first_block | index / 4);
    return words[index % 4] * 0x1.0p-32;
  }

  __device__ uint32_t hits(double p, int head, uint32_t first_block) const {
    const uint32_t samples = step_.how.feature_samples;
    const auto channel = static_cast<uint32_t>(channel_);
    if (!step_.how.iid_features) {
      const double expected = __dmul_rn(samples, p), whole = floor(expected);
      const bool undecided = uniform(channel, head, first_block) < expected - whole;
      return static_cast<uint32_t>(whole) + (undecided ? 1 : 0);
    }
    uint32_t count = 0;
    for (uint32_t b = 0; b < samples; ++b) {
      count += uniform(channel * samples + b, head, first_block) < p ? 1 : 0;
    }
    return count;
  }

  // Return the maximum, and the count, over the block.
  __device__ double largest(double x) const {
    for (int i = 16; i > 0; i /= 2) x = fmax(x, __shfl_xor_sync(kAll, x, i));
    __syncthreads();
    if (channel_ % 32 == 0) shared_.largest[channel_ / 32] = x;
    __syncthreads();
    for (int w = 0; w < kDim / 32; ++w) x = fmax(x, shared_.largest[w]);
    return x;
  }
  __device__ uint32_t count(bool counts) const {
    const uint32_t own = __popc(__ballot_sync(kAll, counts));
    __syncthreads();
    if (channel_ % 32 == 0) shared_.counts[channel_ / 32] = own;
    __syncthreads();
    uint32_t all = 0;
    for (int w = 0; w < kDim / 32; ++w) all += shared_.counts[w];
    return all;
  }

  const Step& step_;
  FeatureShared<kDim>& shared_;
  int channel_, row_, kv_head_, group_;
};

// Writes Space::features, group_features and queries, the Inputs::queries of later kernels.
template <int kDim>
__global__ void __launch_bounds__(kDim) featuresKernel(const __grid_constant__ Step step) {
  __shared__ FeatureShared<kDim> shared;
  FeatureBlock<kDim>(step, shared).run();
}

}  // namespace allot::kernels::cuda
