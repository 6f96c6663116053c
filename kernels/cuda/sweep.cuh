#pragma once
// The sweep over keys (step.h). Every warp works alone: it walks over its pieces and keeps its own
// ring of copies from global to shared memory in flight, which runs ahead over the ends of pieces,
// so that no barrier of a block and no latency of a piece stops the flow of bytes.
#include "kernels/cuda/sweep_draws.cuh"

namespace allot::kernels::cuda {

template <int kDim, typename T, Sweep kSweep>
class SweepWarp : SweepDraws<kDim, T, kSweep> {
  using Base = SweepDraws<kDim, T, kSweep>;
  using Layout = SweepLayout<kDim, kSweep>;
  using Elements = ElementOf<T>;
  using Base::await, Base::begin_, Base::end_, Base::g_, Base::goOn, Base::inner_, Base::issue;
  using Base::exactScores, Base::hasHead, Base::headOf, Base::largestOverKeys, Base::overKeys;
  using Base::kSteps, Base::lane_, Base::lookAhead, Base::next_, Base::open, Base::release;
  using Base::scoreTile, Base::scoresOf, Base::shadowScores, Base::store, Base::takeQueries;
  using Base::scratch_, Base::step_, Base::t_, Base::within_, Base::workAt, Base::addValues;
  using Base::tell, Base::drawPiece, Base::takePending;

 public:
  __device__ SweepWarp(const Step& step, const RowPieces* rows, uint8_t* memory)
      : Base(step, rows, memory) {}

  __device__ void run() {
    Place place{begin_, begin_ < end_ ? within_ : inner_, 0};
    next_ = place;
    lookAhead();
    open();
    for (int i = 0; i < Layout::kSlots; ++i) issue();
    for (; place.within < inner_; goOn(place)) {
      const Work work = workAt(place);
      if (work.exact) {
        exactPiece(work);
      } else if constexpr (kSweep != Sweep::kExact) {
        sampledPiece(work);
      }
    }
    waitCopies<0>();
    takePending();
  }

 private:
  // ---- Exact rows.

  __device__ void exactPiece(const Work& work) {
    takeQueries(work);
    // Exponents are relative to a score that has been the largest, or up to 2^8 less than that.
    float reference = kNoKeys, sum = 0;
    float total[kSteps][4] = {};
    const int tiles = (work.count + kPart - 1) / kPart;
#pragma unroll 1
    for (int tile = work.dead / kPart; tile < tiles; ++tile) {
      float s[2];
      scoreTile(work, tile, await(), s);
      release();
      const float top = fmaxf(s[0], s[1]);
      if (__any_sync(kAll, top > reference + 8)) {
        const float raised = fmaxf(reference, largestOverKeys(top));
        const float factor = power2(reference - raised);
        reference = raised;
        sum *= factor;
#pragma unroll
        for (int m = 0; m < kSteps; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) total[m][i] *= factor;
        }
      }
      const float p0 = power2(s[0] - reference), p1 = power2(s[1] - reference);
      sum += p0 + p1;
      const uint32_t b0 = transpose(twoParts<T>(p0)), b1 = transpose(twoParts<T>(p1));
      addValues(await(), b0, b1, total);
      release();
    }
    tell(work);
    store(work, total, 1.0f);
    sum = overKeys(sum);
    if (g_ == 0 && hasHead(work, t_)) {
      step_.pieces[pieceIndex(step_, work.row, headOf(work, t_), work.piece)] = {reference, 0, sum,
                                                                                 0};
    }
  }

  // ---- Sampled rows.

  __device__ void sampledPiece(const Work& work) {
    // Scores go to scratch as they come, and are taken from there key by key.
    float top = kSweep == Sweep::kShadow ? shadowScores(work) : exactScores(work);
    tell(work);
    top = largestOverKeys(top);
    const float reference = top >= kNoKeys ? ceilf(top) : kNoKeys;
    __syncwarp();
    const int64_t first = pieceIndex(step_, work.row, headOf(work, 0), work.piece);
    float sums[kQuad];
#pragma unroll
    for (int h = 0; h < kQuad; ++h) {
      const float one = __shfl_sync(kAll, reference, h) + 1;  // masses are at most a half
      const float4 low = *reinterpret_cast<const float4*>(scoresOf(h) + 8 * lane_);
      const float4 high = *reinterpret_cast<const float4*>(scoresOf(h) + 8 * lane_ + 4);
      float p[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) p[i] = power2(p[i] - one);
      sums[h] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
      const uint4 masses{halves(p[0], p[1]), halves(p[2], p[3]), halves(p[4], p[5]),
                         halves(p[6], p[7])};
      if constexpr (kSweep == Sweep::kFlash) {
        __syncwarp();
        *reinterpret_cast<uint4*>(scratch_ + h * kScoreRow + lane_ * 16) = masses;
      } else if (hasHead(work, h)) {
        if (step_.scores) {
          auto* to = reinterpret_cast<float4*>(
              step_.scores + (first + static_cast<int64_t>(h) * step_.max_pieces) * kPieceKeys +
              8 * lane_);
          to[0] = low;
          to[1] = high;
          continue;
        }
        storeMasses(first + static_cast<int64_t>(h) * step_.max_pieces, h, masses);
      }
    }
    const float sum = 2 * overLanes(sums);
    if constexpr (kSweep == Sweep::kFlash) {
      __syncwarp();
      drawPiece(work, reference, sum);
    } else if (lane_ < kQuad && hasHead(work, lane_)) {
      Piece& piece = step_.pieces[first + static_cast<int64_t>(lane_) * step_.max_pieces];
      piece.reference = reference;
      piece.sum = sum;
    }
    __syncwarp();
  }

  // The sums over all lanes of four numbers, each to the lanes i with i % 4 = its index.
  __device__ float overLanes(const float (&x)[kQuad]) const {
    // Lanes with bit 1 keep numbers 2 and 3 and give away 0 and 1; then the same with bit 0.
    const bool upper = lane_ & 2, odd = lane_ & 1;
    float a = upper ? x[2] : x[0], b = upper ? x[3] : x[1];
    a += __shfl_xor_sync(kAll, upper ? x[0] : x[2], 2);
    b += __shfl_xor_sync(kAll, upper ? x[1] : x[3], 2);
    const float c = (odd ? b : a) + __shfl_xor_sync(kAll, odd ? a : b, 1);
    return overKeys(c);
  }

  // Two masses in units. Their sum has 24 bits: it is exact in float32.
  __device__ static uint32_t unitsOfTwo(uint32_t masses) {
    const float2 two = ElementOf<__half>::pair(masses);
    return static_cast<uint32_t>((two.x + two.y) * kMassUnits);
  }

  // Masses of keys 8 lane .. + 7, and their sums.
  __device__ void storeMasses(int64_t at, int h, const uint4& masses) const {
    const uint32_t own =
        unitsOfTwo(masses.x) + unitsOfTwo(masses.y) + unitsOfTwo(masses.z) + unitsOfTwo(masses.w);
    const uint32_t part = own + __shfl_xor_sync(kAll, own, 1);
    const uint32_t all = __reduce_add_sync(kAll, own);
    *reinterpret_cast<uint4*>(step_.piece_bytes + at * kPieceBytes + lane_ * 16) = masses;
    if (lane_ % 2 == 0) step_.part_masses[at * kParts + lane_ / 2] = part;
    if (lane_ == h) step_.pieces[at].mass = all;
  }
};

__device__ inline void countPieces(const Step& step, RowPieces* rows) {
  __shared__ int warp_totals[32];
  __shared__ int passed;
  if (threadIdx.x == 0) passed = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = 0; first < step.rows; first += blockDim.x) {
    const int row = first + threadIdx.x;
    int pieces = 0;
    uint32_t keys = 0;
    if (row < step.rows) {
      const RowKind kind = kindOf(step, row);
      const int n = step.lengths[row];
      if (kind == RowKind::kExact) pieces = exactPiecesOf(exactKeysOf(step, n).span());
      if (kind == RowKind::kSampled) pieces = piecesOf(keysOf(step, n).span());
      keys = kind == RowKind::kExact ? n | 0x80000000u : n;
    }
    int sum = pieces;
    for (int i = 1; i < 32; i *= 2) {
      const int left = __shfl_up_sync(kAll, sum, i);
      if (lane >= i) sum += left;
    }
    if (lane == 31) warp_totals[warp] = sum;
    __syncthreads();
    int before = passed;
    for (int w = 0; w < warp; ++w) before += warp_totals[w];
    if (row < step.rows) rows[row] = {before + sum - pieces, keys};
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) passed = before + sum;
    __syncthreads();
  }
  if (threadIdx.x == 0) rows[step.rows] = {passed, 0};
  __syncthreads();
}

template <int kDim, typename T, Sweep kSweep>
__global__ void __launch_bounds__(128, kSweep == Sweep::kFlash ? 3 : 4)
    sweepKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(256) uint8_t unaligned[];
  using Layout = SweepLayout<kDim, kSweep>;
  uint8_t* memory = unaligned + (-sharedAddress(unaligned) & 255);
  auto* rows = reinterpret_cast<RowPieces*>(memory + blockDim.x / 32 * Layout::kWarpBytes);
  countPieces(step, rows);
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  SweepWarp<kDim, T, kSweep> warp(step, rows, memory + threadIdx.x / 32 * Layout::kWarpBytes);
  warp.run();
}

}  // namespace allot::kernels::cuda
