#pragma once
// What every way of finishing a query head has in common (step.h): one block, which puts the
// sweep's pieces together in order and gathers entries of the pool.
#include "allot/kernels/philox_streams.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kFinishThreads = 256;
constexpr int kFinishWarps = kFinishThreads / 32;

template <int kDim>
struct HeadShared {
  double warp_doubles[kFinishWarps];
  float warp_floats[kFinishWarps];
  float sums[kFinishWarps][kDim];
};

// kRescores: scores that come from a shadow are computed again, exactly, for the entries gathered.
// kThreads: fewer threads than kFinishThreads do the work of those, each that of several, whose
// sums stay their own: no bit depends on how many threads there are. One head takes longer then,
// and many heads less, since more of them are on a multiprocessor at once.
template <int kDim, typename T, bool kRescores, bool kByHead, int kThreads = kFinishThreads>
class HeadBlock {
 protected:
  static constexpr int kShare = kFinishThreads / kThreads, kOwnWarps = kThreads / 32;
  static_assert(kThreads >= kDim && kFinishThreads % kThreads == 0);
  static constexpr int kLanes = kDim / 8;       // that read one entry together
  static constexpr int kEntries = 32 / kLanes;  // a warp reads at once

  __device__ HeadBlock(const Step& step, HeadShared<kDim>& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        memory_(memory),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {
    sequence_ = blockIdx.x / step.in.heads;
    head_ = blockIdx.x % step.in.heads;
    kv_head_ = head_ / step.in.group;
    keys_ = keysOf(step, step.in.lengths[sequence_]);
    budget_ = budgetOf<kByHead>(step, sequence_, head_);
    pieces_ = piecesOf(keys_.span());
    at_ = pieceIndex(step, sequence_, head_, 0);
    kind_ = kindOf<kByHead>(step, sequence_, head_);
    if constexpr (kRescores) {
      const float* from = step_.in.queries + headIndex() * kDim + lane_ % kLanes * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) query_[i] = from[i];
    }
  }

  // A head that is silent, wrong or exact is done; false: it is none of these.
  __device__ bool plain() {
    if (kind_ == HeadKind::kBad) {
      const bool length = beyondRoom(step_, keys_.n);
      if (tid_ == 0) report(step_, length ? Wrong::kLength : Wrong::kBudget, sequence_, kv_head_);
      fill(notANumber(), notANumber());
    } else if (kind_ == HeadKind::kSilent) {
      fill(kByHead ? idleValue() : 0.0f, minusInfinity());
    } else if (kind_ == HeadKind::kExact) {
      pieces_ = exactPiecesOf(exactKeysOf(step_, keys_.n).span());
      combineExact();
    } else {
      return false;
    }
    return true;
  }

  __device__ int64_t headIndex() const {
    return static_cast<int64_t>(sequence_) * step_.in.heads + head_;
  }
  __device__ void fill(float out, float lse) const {
    if (tid_ < kDim) put(tid_, out);
    setLse(lse);
  }
  // Channel tid_ of what a head with budget 0 gives.
  __device__ float idleValue() const {
    if (!step_.by_head.idle_values || keys_.n == 0 || tid_ >= kDim) return 0;
    const int64_t at = static_cast<int64_t>(sequence_) * step_.cache.kv_heads + kv_head_;
    return step_.by_head.idle_values[at * kDim + tid_];
  }
  // A channel of what the head gives.
  __device__ void put(int d, float x) const {
    const int64_t at = headIndex() * kDim + d;
    step_.out.out[at] = x;
    if (step_.out.rounded) static_cast<T*>(step_.out.rounded)[at] = ElementOf<T>::of(x);
  }
  __device__ void setLse(float lse) const {
    if (tid_ == 0 && step_.out.lse) step_.out.lse[headIndex()] = lse;
  }
  __device__ int64_t listAt() const { return headIndex() * step_.space.draw_stride; }
  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.in.seed, step_.in.streams[sequence_], step_.in.steps[sequence_],
                  attentionStream(step_.in.layer, static_cast<uint32_t>(head_)), block);
  }

  // ---- Over the block, in one order whatever the block's neighbours.

  // kOf: how many a thread has.
  template <int kOf, typename X, typename Function>
  __device__ X reduce(const X (&own)[kOf], X* warps, Function function) {
    X x[kOf];
#pragma unroll
    for (int s = 0; s < kOf; ++s) {
      x[s] = own[s];
      for (int i = 16; i > 0; i /= 2) x[s] = function(x[s], __shfl_xor_sync(kAll, x[s], i));
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kOf; ++s) {
      if (lane_ == 0) warps[warp_ + s * kOwnWarps] = x[s];
    }
    __syncthreads();
    X all = warps[0];
    for (int w = 1; w < kOf * kOwnWarps; ++w) all = function(all, warps[w]);
    return all;
  }
  __device__ float largest(float x) {
    const float one[1] = {x};
    return reduce(one, shared_.warp_floats, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ float sum(const float (&x)[kShare]) {
    return reduce(x, shared_.warp_floats, [](float a, float b) { return a + b; });
  }
  __device__ double sum(const double (&x)[kShare]) {
    return reduce(x, shared_.warp_doubles, [](double a, double b) { return a + b; });
  }
  template <typename X>
  __device__ X sum(X x) {
    static_assert(kShare == 1);
    const X one[1] = {x};
    return sum(one);
  }

  __device__ float largestReference() {
    float reference = kNoKeys;
    if (tid_ < pieces_) reference = (piece_ = step_.space.pieces[at_ + tid_]).reference;
    for (int p = tid_ + kThreads; p < pieces_; p += kThreads) {
      reference = fmaxf(reference, step_.space.pieces[at_ + p].reference);
    }
    return largest(reference);
  }

  // ---- Sums of pieces.

  // Exact pieces, in fours: joined one to the next where the sweep has not done so.
  __device__ void combineExact() {
    // Of a piece that is joined to those before it: their factor, and its own. Of the first of a
    // four: the four's sum, and its reference and then factor.
    auto* left = reinterpret_cast<float*>(memory_);
    float* right = left + pieces_;
    const Piece* pieces = step_.space.pieces + at_;
    const int d = tid_ % kDim;
    const auto valueAt = [&](int p) {
      return reinterpret_cast<const float*>(step_.space.piece_bytes + (at_ + p) * kPieceBytes)[d];
    };
    const Piece one = pieces[0];
    const float value = valueAt(0);
    if (one.mass == static_cast<uint32_t>(pieces_)) return fillFrom(one, value);
    const bool whole = one.mass > 1;  // the sweep has joined them
    float reference = kNoKeys;
    for (int first = tid_ * kJoinedPieces; first < pieces_; first += kThreads * kJoinedPieces) {
      Piece own[kJoinedPieces];
#pragma unroll
      for (int i = 0; i < kJoinedPieces; ++i) own[i] = pieces[min(first + i, pieces_ - 1)];
      Piece four = own[0];
#pragma unroll
      for (int i = 1; i < kJoinedPieces; ++i) {
        if (whole || first + i >= pieces_) continue;
        const float common = fmaxf(four.reference, own[i].reference);
        left[first + i] = power2(four.reference - common);
        right[first + i] = power2(own[i].reference - common);
        four.sum = joined(four.sum, left[first + i], own[i].sum, right[first + i]);
        four.reference = common;
      }
      left[first] = four.sum;
      right[first] = four.reference;
      reference = fmaxf(reference, four.reference);
    }
    reference = largest(reference);
    float totals[kShare] = {};
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      for (int first = (tid_ + s * kThreads) * kJoinedPieces; first < pieces_;
           first += kFinishThreads * kJoinedPieces) {
        right[first] = power2(right[first] - reference);
        totals[s] = __fmaf_rn(right[first], left[first], totals[s]);
      }
    }
    const float total = sum(totals);
    setLse(total > 0 ? (reference + log2f(total)) * kLn2 : minusInfinity());
    if (budget_ == 0 || !(total > 0)) return fillWithout(total);
    const auto outOf = [&](int side) {
      float out = 0;
      if (whole) {
#pragma unroll 8
        for (int first = side * kJoinedPieces; first < pieces_; first += kSide * kJoinedPieces) {
          out = __fmaf_rn(right[first], valueAt(first), out);
        }
        return out;
      }
#pragma unroll 4
      for (int first = side * kJoinedPieces; first < pieces_; first += kSide * kJoinedPieces) {
        float values[kJoinedPieces];
#pragma unroll
        for (int i = 0; i < kJoinedPieces; ++i) values[i] = valueAt(min(first + i, pieces_ - 1));
        float four = values[0];
#pragma unroll
        for (int i = 1; i < kJoinedPieces; ++i) {
          const int p = first + i;
          if (p < pieces_) four = joined(four, left[p], values[i], right[p]);
        }
        out = __fmaf_rn(right[first], four, out);
      }
      return out;
    };
    putSides(outOf, d, total);
  }

  // Gives what adding one piece to zeros does, or pieces that the sweep has joined to one.
  __device__ void fillFrom(const Piece& one, float value) const {
    setLse(one.sum > 0 ? (one.reference + log2f(one.sum)) * kLn2 : minusInfinity());
    if (budget_ == 0 || !(one.sum > 0)) return fillWithout(one.sum);
    if (tid_ < kDim) put(tid_, (value + 0.0f) / one.sum);
  }

  // Where there is nothing to add up.
  __device__ void fillWithout(float total) const {
    // NaN scores end here too: they were reported, and their sequence must not look like a number.
    float out = budget_ == 0 || total == 0 ? 0.0f : notANumber();
    if (kByHead && budget_ == 0) out = idleValue();
    if (tid_ < kDim) put(tid_, out);
  }

  static constexpr int kSide = kFinishThreads / kDim;  // threads that share a channel

  // The sum of theirs, outOf(side), over `total`.
  template <typename Function>
  __device__ void putSides(Function outOf, int d, float total) {
    float out = 0;
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      const int side = (tid_ + s * kThreads) / kDim;
      const float own = outOf(side);
      shared_.sums[side][d] = own;
      if (s == 0) out = own;
    }
    __syncthreads();
    if (tid_ >= kDim) return;
    for (int side = 1; side < kSide; ++side) out += shared_.sums[side][d];
    put(d, out / total);
  }

  // s2anta-flash's pieces.
  __device__ void combineFlash() {
    auto* factors = reinterpret_cast<float*>(memory_);
    const float reference = largestReference();
    float own_weights[kShare] = {}, own_exponentials[kShare] = {};
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      for (int p = tid_ + s * kThreads; p < pieces_; p += kFinishThreads) {
        const Piece piece = p == tid_ ? piece_ : step_.space.pieces[at_ + p];
        const float scale = power2(piece.reference - reference);
        own_exponentials[s] += scale * piece.sum;
        factors[p] = scale * static_cast<float>(piece.mass);
        own_weights[s] += factors[p];
      }
    }
    const float exponentials = sum(own_exponentials);
    const float total = sum(own_weights);
    setLse(exponentials > 0 ? (reference + log2f(exponentials)) * kLn2 : minusInfinity());
    if (step_.space.draw_keys) {
      const uint32_t samples = drawsOfPiece(budget_, pieces_);
      for (uint32_t m = tid_; m < samples * pieces_; m += kThreads) {
        step_.space.draw_weights[listAt() + m] =
            total > 0 ? factors[m / samples] / (total * static_cast<float>(samples)) : 0.0f;
      }
    }
    if (budget_ == 0 || !(total > 0)) return fillWithout(total);
    const int d = tid_ % kDim;
    const auto outOf = [&](int side) {
      float out = 0;
#pragma unroll 8
      for (int p = side; p < pieces_; p += kSide) {
        const auto* values =
            reinterpret_cast<const float*>(step_.space.piece_bytes + (at_ + p) * kPieceBytes);
        out += factors[p] * values[d];
      }
      return out;
    };
    putSides(outOf, d, total);
  }

  // ---- Entries of the pool.

  // Its position, in vectors of head_dim: the pool has fewer than 2^32.
  __device__ uint32_t entryOf(int key) const {
    const int page = step_.in.page_table[static_cast<int64_t>(sequence_) * step_.in.max_pages +
                                         (key >> step_.cache.page_shift)];
    const bool good = static_cast<uint32_t>(page) < static_cast<uint64_t>(step_.cache.pages);
    const uint32_t first =
        static_cast<uint32_t>((good ? page : 0) * step_.cache.kv_heads + kv_head_)
        << step_.cache.page_shift;
    return first + (key & ((1 << step_.cache.page_shift) - 1));
  }

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

  // Entries gathered: sums of e = 2^(s' - top), and with the thread's eight channels of e v. For a
  // pilot of e^2 and |e v|^2 as well.
  struct Sums {
    float top = kNoKeys;
    double mass = 0, squares = 0, norms = 0;
    float poison = 0;  // not a number once a score was not
    float out[8] = {};
    float value = 0;  // after finish(): of channel tid_

    // To another largest score.
    __device__ void raise(float to) {
      const float factor = power2(top - to);
      const double square = static_cast<double>(factor) * factor;
      top = to;
      mass *= factor;
      squares *= square;
      norms *= square;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] *= factor;
    }
  };

  // Adds a warp's entries: lane i has the position of entry i < count, and its s', or what to add
  // to the exact score's. Lanes beyond have any entry of the pool, and -infinity: loads are then
  // unconditional, and all of them can be on their way at once. used(i, s') is called by all lanes
  // of an entry, which are together. from: the lane that has entry 0.
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
      float mass = 0, squares = 0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float e = power2(s[i] - top);
        mass += e;
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
      sums->mass += mass;
      if (kPilot) sums->squares += squares;
    }
  }

  // The same where all entries weigh the same: out += v.
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

  // The sums over all warps, in order, from the kShare of a thread's; the first has them.
  template <bool kPilot>
  __device__ void finish(Sums* sums) {
    float poison = 0, top = kNoKeys;
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      poison += sums[s].poison;
      top = fmaxf(top, sums[s].top);
    }
    if (kRescores && __any_sync(kAll, poison != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, sequence_, kv_head_);
    }
    top = largest(top);
    // All lanes of an entry have its mass.
    const bool counts = lane_ % kLanes == 0;
    double mass[kShare], squares[kShare], norms[kShare];
#pragma unroll
    for (int s = 0; s < kShare; ++s) {
      sums[s].raise(top);
      mass[s] = counts ? sums[s].mass : 0.0;
      squares[s] = counts ? sums[s].squares : 0.0;
      norms[s] = sums[s].norms;
    }
    sums->mass = sum(mass);
    if (kPilot) {
      sums->squares = sum(squares);
      sums->norms = sum(norms);
    }
    sums->value = sumEntries(sums);
  }

  // out over lanes and warps, in order: thread d gets channel d.
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
    for (int w = 0; tid_ < kDim && w < kFinishWarps; ++w) total += shared_.sums[w][tid_];
    return total;
  }

  const Step& step_;
  HeadShared<kDim>& shared_;
  uint8_t* memory_;
  int tid_, lane_, warp_;
  int sequence_, head_, kv_head_, pieces_;
  SequenceKeys keys_;
  uint32_t budget_;
  int64_t at_;
  Piece piece_{};  // of index tid_
  HeadKind kind_;
  float query_[kRescores ? 8 : 1];  // this lane's channels
};

}  // namespace allot::kernels::cuda
