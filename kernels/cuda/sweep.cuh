#pragma once
// The sweep over keys (step.h). Every warp works alone: it walks over its share of the pieces and
// keeps its own pipe of copies full.
#include <type_traits>

#include "kernels/cuda/tile_drawer.cuh"

namespace allot::kernels::cuda {

// Scores of a piece to masses, from scratch to the workspace.
class MassWriter {
 public:
  __device__ MassWriter(const Step& step, const Lane& lane) : step_(step), lane_(lane) {}

  // Masses of keys 8 lane .. + 7, and their sums.
  __device__ void store(int64_t at, int h, const uint4& masses) const {
    const uint32_t own =
        unitsOfTwo(masses.x) + unitsOfTwo(masses.y) + unitsOfTwo(masses.z) + unitsOfTwo(masses.w);
    const uint32_t part = own + __shfl_xor_sync(kAll, own, 1);
    const uint32_t all = __reduce_add_sync(kAll, own);
    *reinterpret_cast<uint4*>(step_.space.piece_bytes + at * kPieceBytes + lane_.id * 16) = masses;
    if (lane_.id % 2 == 0) step_.space.part_masses[at * kParts + lane_.id / 2] = part;
    if (lane_.id == h) step_.space.pieces[at].mass = all;
  }

  // The scores themselves, where keys are chosen by them.
  __device__ void storeScores(int64_t at, const float4& low, const float4& high) const {
    auto* to = reinterpret_cast<float4*>(step_.space.scores + at * kPieceKeys + 8 * lane_.id);
    to[0] = low;
    to[1] = high;
  }

  // The sums over all lanes of four numbers, each to the lanes i with i % 4 = its index.
  __device__ float overLanes(const float (&x)[kQuad]) const {
    // Lanes with bit 1 keep numbers 2 and 3 and give away 0 and 1; then the same with bit 0.
    const bool upper = lane_.id & 2, odd = lane_.id & 1;
    float a = upper ? x[2] : x[0], b = upper ? x[3] : x[1];
    a += __shfl_xor_sync(kAll, upper ? x[0] : x[2], 2);
    b += __shfl_xor_sync(kAll, upper ? x[1] : x[3], 2);
    const float c = (odd ? b : a) + __shfl_xor_sync(kAll, odd ? a : b, 1);
    return overKeys(c);
  }

 private:
  // Two masses in units. Their sum has 24 bits: it is exact in float32.
  __device__ static uint32_t unitsOfTwo(uint32_t masses) {
    const float2 two = ElementOf<__half>::pair(masses);
    return static_cast<uint32_t>((two.x + two.y) * kMassUnits);
  }

  const Step& step_;
  Lane lane_;
};

struct Nothing {
  template <typename... Any>
  __device__ explicit Nothing(const Any&...) {}
};

// One warp's parts, and its way through the work.
template <int kDim, typename T, Sweep kSweep, bool kByHead>
class SweepWarp {
  using Layout = SweepLayout<kDim, kSweep>;
  static constexpr bool kShadows = kSweep == Sweep::kShadow, kDraws = kSweep == Sweep::kFlash;

 public:
  __device__ SweepWarp(const Step& step, const SequencePieces* sequences, uint8_t* memory)
      : step_(step),
        lane_(Lane::here()),
        share_(step, sequences),
        pipe_(step, share_, memory),
        tile_(step, lane_),
        shadow_(step, lane_),
        masses_(step, lane_),
        drawer_(step, lane_, memory),
        scratch_{Layout::scratchOf(memory)} {}

  __device__ void run() {
    Place place = share_.begin();
    pipe_.start(share_);
    for (; share_.has(place); share_.goOn(place)) {
      const WorkOf<kByHead> work = share_.at(place);
      if (work.exact) {
        exactPiece(work);
      } else if constexpr (kSweep != Sweep::kExact) {
        sampledPiece(work);
      }
    }
    waitCopies<0>();
    if constexpr (kDraws) drawer_.takePending();
  }

 private:
  // Softmax's sum and the weighted sum of values, online.
  __device__ void exactPiece(const WorkOf<kByHead>& work) {
    tile_.take(work, share_.queriesOf(work));
    const uint32_t lane_value = TileLayout<kDim>::valuesOf(lane_.id);
    // Exponents are relative to a score that has been the largest, or up to 2^8 less than that.
    float reference = kNoKeys, sum = 0;
    ValueSum<kDim, T> values;
    const int tiles = (work.count + kPart - 1) / kPart;
#pragma unroll 1
    for (int tile = work.dead / kPart; tile < tiles; ++tile) {
      float s[2];
      tile_.scores(work, tile, pipe_.await(), guard_, s);
      pipe_.release(share_);
      const float top = fmaxf(s[0], s[1]);
      if (__any_sync(kAll, top > reference + 8)) {
        const float raised = fmaxf(reference, largestOverKeys(top));
        const float factor = power2(reference - raised);
        reference = raised;
        sum *= factor;
        values.scale(factor);
      }
      const float p0 = power2(s[0] - reference), p1 = power2(s[1] - reference);
      sum += p0 + p1;
      const uint32_t b0 = transpose(twoParts<T>(p0)), b1 = transpose(twoParts<T>(p1));
      values.add(pipe_.await() + lane_value, b0, b1);
      pipe_.release(share_);
    }
    guard_.tell(step_, work, lane_.id);
    values.store(step_, work, lane_, 1.0f);
    sum = overKeys(sum);
    if (lane_.g == 0 && isFor(step_, work, lane_.t)) {
      const int head = headOf(step_, work, lane_.t);
      step_.space.pieces[pieceIndex(step_, work.sequence, head, work.piece)] = {reference, 0, sum,
                                                                                0};
    }
  }

  __device__ float scoresToScratch(const Work& work) {
    if constexpr (kShadows) {
      return shadow_.ofPiece(work, share_, pipe_, guard_, scratch_);
    } else {
      return tile_.ofPiece(work, share_, pipe_, guard_, scratch_);
    }
  }

  // Scores go to scratch as they come, and are taken from there key by key.
  __device__ void sampledPiece(const WorkOf<kByHead>& work) {
    float top = scoresToScratch(work);
    guard_.tell(step_, work, lane_.id);
    top = largestOverKeys(top);
    const float reference = top >= kNoKeys ? ceilf(top) : kNoKeys;
    __syncwarp();
    const int64_t first = pieceIndex(step_, work.sequence, headOf(step_, work, 0), work.piece);
    float sums[kQuad];
#pragma unroll
    for (int h = 0; h < kQuad; ++h) {
      const float one = __shfl_sync(kAll, reference, h) + 1;  // masses are at most a half
      const float4 low = *reinterpret_cast<const float4*>(scratch_.of(h) + 8 * lane_.id);
      const float4 high = *reinterpret_cast<const float4*>(scratch_.of(h) + 8 * lane_.id + 4);
      float p[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) p[i] = power2(p[i] - one);
      sums[h] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
      const uint4 masses{halves(p[0], p[1]), halves(p[2], p[3]), halves(p[4], p[5]),
                         halves(p[6], p[7])};
      const int64_t at = first + static_cast<int64_t>(h) * step_.space.max_pieces;
      if constexpr (kDraws) {
        __syncwarp();
        reinterpret_cast<uint4*>(scratch_.of(h))[lane_.id] = masses;
      } else if (isFor(step_, work, h)) {
        if (step_.space.scores) {
          masses_.storeScores(at, low, high);
        } else {
          masses_.store(at, h, masses);
        }
      }
    }
    const float sum = 2 * masses_.overLanes(sums);
    if constexpr (kDraws) {
      __syncwarp();
      drawer_.draw(work, share_.piecesOf(work.sequence), reference, sum);
    } else if (lane_.id < kQuad && isFor(step_, work, lane_.id)) {
      Piece& piece =
          step_.space.pieces[first + static_cast<int64_t>(lane_.id) * step_.space.max_pieces];
      piece.reference = reference;
      piece.sum = sum;
    }
    __syncwarp();
  }

  const Step& step_;
  Lane lane_;
  WarpShare<kSweep, kByHead> share_;
  KeyPipe<kDim, kSweep, kByHead> pipe_;
  ScoreGuard guard_;
  ScoreTile<kDim, T> tile_;
  std::conditional_t<kShadows, ShadowScores<kDim>, Nothing> shadow_;
  MassWriter masses_;
  std::conditional_t<kDraws, TileDrawer<kDim, T, kByHead>, Nothing> drawer_;
  ScoreScratch scratch_;
};

template <int kDim, typename T, Sweep kSweep, bool kByHead>
__global__ void __launch_bounds__(128, kSweep == Sweep::kFlash ? 3 : 4)
    sweepKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(256) uint8_t unaligned[];
  using Layout = SweepLayout<kDim, kSweep>;
  uint8_t* memory = unaligned + (-sharedAddress(unaligned) & 255);
  auto* sequences =
      reinterpret_cast<SequencePieces*>(memory + blockDim.x / 32 * Layout::kWarpBytes);
  countPieces<kByHead>(step, sequences);
#if __CUDA_ARCH__ >= ALLOT_OVERLAP_ARCH
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  SweepWarp<kDim, T, kSweep, kByHead> warp(step, sequences,
                                           memory + threadIdx.x / 32 * Layout::kWarpBytes);
  warp.run();
}

}  // namespace allot::kernels::cuda
