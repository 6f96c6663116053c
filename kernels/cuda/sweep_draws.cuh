#pragma once
// s2anta-flash: draws of a piece by the warp that swept it, and the mean of their values, which are
// fetched while the next piece is scored.
#include "allot/kernels/philox_streams.h"
#include "kernels/cuda/sweep_scores.cuh"

namespace allot::kernels::cuda {

template <int kDim, typename T, Sweep kSweep>
class SweepDraws : protected SweepScores<kDim, T, kSweep> {
 protected:
  using Base = SweepScores<kDim, T, kSweep>;
  using Layout = SweepLayout<kDim, kSweep>;
  using Elements = ElementOf<T>;
  using Base::Base;
  using Base::g_, Base::kChunks, Base::kRowsAtOnce, Base::kSteps, Base::lane_, Base::lane_copy_;
  using Base::pagesOf, Base::position, Base::ring_, Base::rows_, Base::scratch_, Base::step_;
  using Base::t_, Base::addValues, Base::hasHead, Base::headOf, Base::store;

  // Lane i's masses of keys 8 i .. 8 i + 7 in units; returns their sum.
  __device__ static uint32_t unitsOf(const uint4& eight, uint32_t (&units)[8]) {
    uint32_t total = 0;
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = ElementOf<__half>::pair(words[i]);
      units[2 * i] = static_cast<uint32_t>(two.x * kMassUnits);
      units[2 * i + 1] = static_cast<uint32_t>(two.y * kMassUnits);
      total += units[2 * i] + units[2 * i + 1];
    }
    return total;
  }

  __device__ DrawScratch& drawScratch() const {
    return *reinterpret_cast<DrawScratch*>(scratch_ + kQuad * kScoreRow);
  }

  __device__ void drawPiece(const Work& work, float reference, float sum) {
    if constexpr (kSweep == Sweep::kFlash) {
      const uint32_t samples = drawsOfPiece(step_.budgets[work.row],
                                            rows_[work.row + 1].before - rows_[work.row].before);
      countDraws(work, samples, reference, sum);
      // Keys that some head drew, in order: their counts, and which they are.
      const DrawScratch& draws = drawScratch();
      auto* counted = reinterpret_cast<uint32_t*>(scratch_);  // masses are done with
      uint8_t* keys = scratch_ + kPieceKeys * sizeof(uint32_t);
      uint32_t counts[8];
      int place = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        counts[i] = draws.counts[8 * lane_ + i];
        place += counts[i] != 0;
      }
      const int own = place;
#pragma unroll
      for (int i = 1; i < 32; i *= 2) {
        const int left = __shfl_up_sync(kAll, place, i);
        if (lane_ >= i) place += left;
      }
      const int drawn = __shfl_sync(kAll, place, 31);
      place -= own;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (counts[i] == 0) continue;
        counted[place] = counts[i];
        keys[place++] = static_cast<uint8_t>(8 * lane_ + i);
      }
      __syncwarp();
      // 64 keys have been scored since the pending rows were asked for: they have arrived.
      if (work.count < Layout::kSlots * kPart) waitCopies<0>();
      takePending();
      const float factor = 1.0f / static_cast<float>(samples);
      const int pages = pagesOf(work);
      constexpr int kRoom = Layout::kGatherSlots * kPart;
      float total[kSteps][4] = {};
      int first = 0;
      for (; drawn - first > kRoom; first += kRoom) {
        fetchRows(work, pages, keys, first, drawn);
        waitCopies<0>();
        __syncwarp();
        addRows(counted + first, kRoom, total);
        __syncwarp();
      }
      fetchRows(work, pages, keys, first, drawn);
      if (first > 0) {  // more than there is room for: not worth a second way
        waitCopies<0>();
        __syncwarp();
        addRows(counted + first, drawn - first, total);
        store(work, total, factor);
        return;
      }
      for (int i = lane_; i < drawn; i += 32) drawScratch().pending[i] = counted[i];
      pending_ = work;
      pending_rows_ = drawn;
      pending_factor_ = factor;
    }
  }

  // draws.counts, and the list of draws where it is wanted.
  __device__ void countDraws(const Work& work, uint32_t samples, float reference, float sum) {
    DrawScratch& draws = drawScratch();
    if (lane_ < kQuad) {
      const uint32_t stream =
          attentionStream(step_.layer, static_cast<uint32_t>(headOf(work, lane_)));
      draws.offsets[lane_] = philox(step_.seed, step_.sequences[work.row], step_.steps[work.row],
                                    stream, static_cast<uint32_t>(work.first / kPieceKeys))[0] >>
                             8;
    }
#pragma unroll
    for (int h = 0; h < kQuad; ++h) {
      const uint4 eight = *reinterpret_cast<const uint4*>(scratch_ + h * kScoreRow + lane_ * 16);
      uint32_t units[8];
      uint32_t reached = unitsOf(eight, units);
#pragma unroll
      for (int i = 1; i < 32; i *= 2) {
        const uint32_t left = __shfl_up_sync(kAll, reached, i);
        if (lane_ >= i) reached += left;
      }
      draws.reached[h][lane_] = reached;
      const uint32_t mass = __shfl_sync(kAll, reached, 31);
      if (lane_ == h) {
        draws.masses[h] = mass;
        if (hasHead(work, h)) {
          step_.pieces[pieceIndex(step_, work.row, headOf(work, h), work.piece)] = {reference, mass,
                                                                                    sum, 0};
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPieceKeys / 32; ++i) draws.counts[i * 32 + lane_] = 0;
    __syncwarp();
    // Draw m falls on the first key whose masses reach beyond its threshold, as in
    // kernels/cpu/draws.cpp.
    const uint64_t divisor = static_cast<uint64_t>(samples) << 24;
    const double inverse = 1.0 / static_cast<double>(divisor);
    const int heads = min(kQuad, step_.heads / step_.kv_heads - work.quad * kQuad);
    for (uint32_t i = lane_; i < samples * heads; i += 32) {
      const uint32_t h = i / samples, m = i - h * samples;
      const uint32_t mass = draws.masses[h];
      int key = -1;
      if (mass > 0) {
        const uint64_t place = (static_cast<uint64_t>(m + 1) << 24) - draws.offsets[h];
        auto rest = static_cast<uint32_t>(quotient(place * mass - 1, divisor, inverse));
        int eight = 0;
#pragma unroll
        for (int jump = 16; jump > 0; jump /= 2) {
          if (draws.reached[h][eight + jump - 1] <= rest) eight += jump;
        }
        if (eight > 0) rest -= draws.reached[h][eight - 1];
        uint32_t units[8];
        unitsOf(*reinterpret_cast<const uint4*>(scratch_ + h * kScoreRow + eight * 16), units);
        key = 8 * eight;
        bool found = false;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          found |= rest < units[k];
          if (!found) {
            rest -= units[k];
            ++key;
          }
        }
        atomicAdd(&draws.counts[key], 1u << (8 * h));
      }
      if (step_.draw_keys) {
        const int64_t list =
            static_cast<int64_t>(work.row) * step_.heads + headOf(work, static_cast<int>(h));
        step_.draw_keys[list * step_.draw_stride + work.piece * samples + m] =
            key < 0 ? -1 : work.first + key;
      }
    }
    __syncwarp();
  }

  // Rows first .. of a piece's drawn keys, as many as there is room for.
  __device__ void fetchRows(const Work& work, int pages, const uint8_t* keys, int first,
                            int drawn) {
    const int groups = min(Layout::kGatherSlots, (drawn - first + kPart - 1) / kPart);
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      // Lane i of the lower half: where row i of the group is.
      const int own = first + group * kPart + lane_ % kPart;
      const int key = keys[min(own, drawn - 1)];
      const int page = __shfl_sync(kAll, pages, key / kPart);
      const bool good =
          own < drawn && static_cast<uint32_t>(page) < static_cast<uint64_t>(step_.pages);
      const uint32_t at = position(good ? page : 0, work.kv_head, work.first + key);
      const uint32_t to = ring_ + (Layout::kSlots + group) * Layout::kSlotBytes + lane_copy_;
      const uint8_t* values = static_cast<const uint8_t*>(step_.values) + lane_ % kChunks * 16;
#pragma unroll
      for (int j = 0; j < kPart / kRowsAtOnce; ++j) {
        const int row = j * kRowsAtOnce + lane_ / kChunks;
        const uint64_t from = __shfl_sync(kAll, at, row);
        const bool valid = __shfl_sync(kAll, good, row);
        copyAsync((to ^ ((kRowsAtOnce * j & 7) << 4)) + j * 512, values + from * Layout::kRowBytes,
                  valid);
      }
    }
    commitCopies();
  }

  // total += the gathered rows, each as often as its counts say.
  __device__ void addRows(const uint32_t* counted, int rows, float (&total)[kSteps][4]) {
    for (int first = 0; first < rows; first += kPart) {
      const auto weight = [&](int row) -> uint32_t {
        if (g_ % 2 || first + row >= rows) return 0;
        const T count = Elements::of(static_cast<float>(counted[first + row] >> (4 * g_) & 0xff));
        uint16_t bits;
        memcpy(&bits, &count, sizeof bits);
        return bits;
      };
      const uint32_t b0 = weight(2 * t_) | weight(2 * t_ + 1) << 16;
      const uint32_t b1 = weight(2 * t_ + 8) | weight(2 * t_ + 9) << 16;
      addValues(ring_ + (Layout::kSlots + first / kPart) * Layout::kSlotBytes, b0, b1, total);
    }
  }

  __device__ void takePending() {
    if constexpr (kSweep == Sweep::kFlash) {
      __syncwarp();
      if (pending_rows_ < 0) return;
      float total[kSteps][4] = {};
      addRows(drawScratch().pending, pending_rows_, total);
      store(pending_, total, pending_factor_);
      pending_rows_ = -1;
      __syncwarp();
    }
  }

  Work pending_;  // s2anta-flash: the piece whose values are on their way
  int pending_rows_ = -1;
  float pending_factor_ = 0;
};

}  // namespace allot::kernels::cuda
