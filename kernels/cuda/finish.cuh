#pragma once
// The finish over heads (step.h): one block a row and query head puts the sweep's pieces together,
// in order. Exact and flash rows: a weighted sum of what the pieces summed. Sampled rows: draws
// from the pieces' masses, by prefix sums alone and in integers, then the drawn values.
#include "allot/kernels/philox.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kFinishThreads = 256;
constexpr int kFinishWarps = kFinishThreads / 32;

// Pieces' masses are added up in units of 2^(E - 24 - kept), E the largest reference, so that the
// total stays below 2^40 and offsets of 24 bits fit beside it in 64: a piece of less than 2^-39 of
// the total may not be drawn from.
__device__ inline int keptBits(int pieces) { return 8 - (32 - __clz(pieces - 1)); }

template <int kDim>
struct FinishShared {
  float warp_floats[kFinishWarps];
  uint64_t warp_sums[kFinishWarps];
  float sums[kFinishWarps][kDim];
  // One batch of draws.
  uint32_t rows[kFinishThreads];  // of the pool
  float weights[kFinishThreads];  // or what they are made from
  float biases[kFinishThreads];
  // The selection of the largest scores.
  uint32_t counts[256];
  uint32_t digit, wanted;
  uint32_t warp_ties[kFinishWarps], warp_larger[kFinishWarps];
};

template <int kDim, typename T, Sweep kFrom, bool kTop>
class FinishHead {
  static constexpr int kLanes = kDim / 8;    // that read one row together
  static constexpr int kRows = 32 / kLanes;  // a warp reads at once
  static constexpr bool kRescores = kFrom == Sweep::kShadow;
  static constexpr bool kSamples = !kTop && (kRescores || kFrom == Sweep::kMasses);
  // Rows of unequal weights, which are known relative to the largest so far.
  static constexpr bool kWeighs = kRescores || kTop;
  static constexpr int kStride = kRows * kFinishWarps;
  static constexpr int kAhead = 8;                 // rows that a lane has on their way
  static constexpr int kBatch = kStride * kAhead;  // draws made together

 public:
  __device__ FinishHead(const Step& step, FinishShared<kDim>& shared, uint8_t* memory)
      : step_(step),
        shared_(shared),
        memory_(memory),
        tid_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {
    row_ = blockIdx.x / step.heads;
    head_ = blockIdx.x % step.heads;
    kv_head_ = head_ / (step.heads / step.kv_heads);
    n_ = step.lengths[row_];
    budget_ = step.budgets[row_];
    pieces_ = piecesOf(n_);
    at_ = pieceIndex(step, row_, head_, 0);
    kind_ = kindOf(step, row_);
    if constexpr (kSamples) {
      if (kind_ == RowKind::kSampled) offset_ = words(0)[0] >> 8;
    }
    if constexpr (kRescores) {
      const float* from = step_.queries +
                          (static_cast<int64_t>(row_) * step_.heads + head_) * kDim +
                          lane_ % kLanes * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) query_[i] = from[i];
    }
  }

  __device__ void run() {
    if (kind_ == RowKind::kBad) {
      const bool length = n_ < 0 || n_ > step_.max_length ||
                          n_ > static_cast<int64_t>(step_.max_pages) << step_.page_shift;
      if (tid_ == 0) report(step_, length ? Wrong::kLength : Wrong::kBudget, row_, kv_head_);
      fill(notANumber(), notANumber());
    } else if (kind_ == RowKind::kSilent) {
      fill(0, minusInfinity());
    } else if (kind_ == RowKind::kExact) {
      pieces_ = (n_ + exactPieceKeys(n_) - 1) / exactPieceKeys(n_);
      combine<false>();
    } else if (kFrom == Sweep::kFlash) {
      combine<true>();
    } else if (kFrom != Sweep::kExact) {
      sample();
    }
  }

 private:
  __device__ void fill(float out, float lse) const {
    if (tid_ < kDim) output()[tid_] = out;
    setLse(lse);
  }
  __device__ float* output() const {
    return step_.out + (static_cast<int64_t>(row_) * step_.heads + head_) * kDim;
  }
  __device__ void setLse(float lse) const {
    if (tid_ == 0 && step_.lse) step_.lse[static_cast<int64_t>(row_) * step_.heads + head_] = lse;
  }
  __device__ int64_t listAt() const {
    return (static_cast<int64_t>(row_) * step_.heads + head_) * step_.draw_stride;
  }

  // ---- Over the block, in one order whatever the block's neighbours.

  template <typename Function>
  __device__ float reduce(float x, Function function) {
    for (int i = 16; i > 0; i /= 2) x = function(x, __shfl_xor_sync(kAll, x, i));
    __syncthreads();
    if (lane_ == 0) shared_.warp_floats[warp_] = x;
    __syncthreads();
    x = shared_.warp_floats[0];
    for (int w = 1; w < kFinishWarps; ++w) x = function(x, shared_.warp_floats[w]);
    return x;
  }
  __device__ float largest(float x) {
    return reduce(x, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ float sum(float x) {
    return reduce(x, [](float a, float b) { return a + b; });
  }

  __device__ float largestReference() {
    float reference = kNoKeys;
    if (tid_ < pieces_) reference = (piece_ = step_.pieces[at_ + tid_]).reference;
    for (int p = tid_ + kFinishThreads; p < pieces_; p += kFinishThreads) {
      reference = fmaxf(reference, step_.pieces[at_ + p].reference);
    }
    return largest(reference);
  }

  // ---- Sums of pieces.

  template <bool kFlash>
  __device__ void combine() {
    auto* factors = reinterpret_cast<float*>(memory_);
    const float reference = largestReference();
    float weights = 0, exponentials = 0;
    for (int p = tid_; p < pieces_; p += kFinishThreads) {
      const Piece piece = p == tid_ ? piece_ : step_.pieces[at_ + p];
      const float scale = power2(piece.reference - reference);
      exponentials += scale * piece.sum;
      factors[p] = kFlash ? scale * static_cast<float>(piece.mass) : scale;
      weights += kFlash ? factors[p] : scale * piece.sum;
    }
    exponentials = sum(exponentials);
    const float total = kFlash ? sum(weights) : exponentials;
    setLse(exponentials > 0 ? (reference + log2f(exponentials)) * kLn2 : minusInfinity());
    if (kFlash && step_.draw_keys) {
      const uint32_t samples = drawsOfPiece(budget_, pieces_);
      for (uint32_t m = tid_; m < samples * pieces_; m += kFinishThreads) {
        step_.draw_weights[listAt() + m] =
            total > 0 ? factors[m / samples] / (total * static_cast<float>(samples)) : 0.0f;
      }
    }
    if (budget_ == 0 || !(total > 0)) {
      // NaN scores end here too: they were reported, and their row must not look like a number.
      const float out = budget_ == 0 || total == 0 ? 0.0f : notANumber();
      if (tid_ < kDim) output()[tid_] = out;
      return;
    }
    constexpr int kSide = kFinishThreads / kDim;  // threads that share a channel
    const int d = tid_ % kDim, side = tid_ / kDim;
    float out = 0;
#pragma unroll 8
    for (int p = side; p < pieces_; p += kSide) {
      const auto* values =
          reinterpret_cast<const float*>(step_.piece_bytes + (at_ + p) * kPieceBytes);
      out += factors[p] * values[d];
    }
    shared_.sums[side][d] = out;
    __syncthreads();
    if (side == 0) {
      for (int s = 1; s < kSide; ++s) out += shared_.sums[s][d];
      output()[d] = out / total;
    }
  }

  // ---- Draws.

  // prefix[p] = masses of pieces before p, in one unit; returns the total.
  __device__ uint64_t scanMasses(float reference, uint64_t* prefix, float* exponentials) {
    const int kept = keptBits(pieces_);
    uint64_t passed = 0;
    float sums = 0;
    for (int first = 0; first < pieces_; first += kFinishThreads) {
      const int p = first + tid_;
      uint64_t mass = 0;
      if (p < pieces_) {
        const Piece piece = first == 0 ? piece_ : step_.pieces[at_ + p];
        mass = inUnits(piece.mass, kept, reference - piece.reference);
        sums += power2(piece.reference - reference) * piece.sum;
      }
      uint64_t before = mass;
      for (int i = 1; i < 32; i *= 2) {
        const uint64_t left = __shfl_up_sync(kAll, before, i);
        if (lane_ >= i) before += left;
      }
      __syncthreads();
      if (lane_ == 31) shared_.warp_sums[warp_] = before;
      __syncthreads();
      uint64_t warps = passed;
      for (int w = 0; w < warp_; ++w) warps += shared_.warp_sums[w];
      if (p < pieces_) prefix[p] = warps + before - mass;
      for (int w = 0; w < kFinishWarps; ++w) passed += shared_.warp_sums[w];
    }
    *exponentials = sum(sums);  // and a barrier after the prefix
    return passed;
  }

  // A piece's units are 2^(kept - gap) of the common one.
  __device__ static uint64_t inUnits(uint32_t mass, int kept, float gap) {
    const float shift = static_cast<float>(kept) - gap;
    if (shift <= -32) return 0;
    const int bits = static_cast<int>(shift);
    return bits >= 0 ? static_cast<uint64_t>(mass) << bits : mass >> -bits;
  }

  // What systematic thresholds have in common, as kernels/cpu/draws.cpp steps them.
  struct Systematic {
    uint64_t first, rest, step, step_rest, divisor;
    double inverse;
  };
  __device__ Systematic systematic(uint64_t total) const {
    const uint64_t divisor = static_cast<uint64_t>(budget_) << 24;
    const double inverse = 1.0 / static_cast<double>(divisor);
    const uint64_t start = ((uint64_t{1} << 24) - offset_) * total - 1;
    const uint64_t first = quotient(start, divisor, inverse);
    const uint64_t step = quotient(total, budget_, inverse * 0x1p24);
    return {first, start - first * divisor, step, (total - step * budget_) << 24, divisor, inverse};
  }

  __device__ std::array<uint32_t, 4> words(uint32_t block) const {
    return philox(step_.seed, step_.sequences[row_], step_.steps[row_],
                  step_.layer << 16 | static_cast<uint32_t>(head_), block);
  }

  __device__ uint64_t threshold(uint32_t m, uint64_t total, const Systematic& all) const {
    if (step_.draw == Draw::kStratified) {
      const uint64_t place = words(m / 4)[m % 4];
      // floor((m 2^32 + place) total / (S 2^32))
      const uint64_t low = (place * (total >> 32)) + (place * (total & 0xffffffffu) >> 32);
      return (m * total + low) / budget_;
    }
    if (step_.draw == Draw::kIndependent) {
      const auto four = words(m / 2);
      const uint64_t random = static_cast<uint64_t>(four[m % 2 * 2]) << 32 | four[m % 2 * 2 + 1];
      return __umul64hi(random, total);
    }
    return all.first + m * all.step +
           quotient(all.rest + m * all.step_rest, all.divisor, all.inverse);
  }

  // The key that the threshold falls on: its row in the pool, and its mass.
  struct Drawn {
    int key;
    uint32_t row;
    float log_mass;  // log2 of the mass, in units of exp
  };
  __device__ Drawn find(uint64_t threshold, const uint64_t* prefix, float reference) const {
    int low = 0, high = pieces_;  // prefix[low] <= threshold < prefix[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (prefix[middle] <= threshold ? low : high) = middle;
    }
    const float own = step_.pieces[at_ + low].reference;
    const int bits = static_cast<int>(static_cast<float>(keptBits(pieces_)) - (reference - own));
    // The key is the first whose prefix in the piece, in the piece's units, reaches `target`.
    const uint64_t rest = threshold - prefix[low];
    uint64_t target = bits >= 0 ? (rest >> bits) + 1 : (rest + 1) << -bits;
    const auto* parts = reinterpret_cast<const uint4*>(step_.part_masses + (at_ + low) * kParts);
    uint4 four[kParts / 4];
#pragma unroll
    for (int i = 0; i < kParts / 4; ++i) four[i] = parts[i];
    int part = 0;
    bool found = false;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const uint4& words = four[i / 4];
      const uint32_t mass = i % 4 == 0   ? words.x
                            : i % 4 == 1 ? words.y
                            : i % 4 == 2 ? words.z
                                         : words.w;
      if (found || mass >= target) {
        found = true;
      } else {
        target -= mass;
        ++part;
      }
    }
    Drawn drawn{low * kPieceKeys + part * kPart, 0, 0};
    const int from = drawn.key;
    const uint32_t first = rowOf(from);  // a part is in one page
    const auto* masses =
        reinterpret_cast<const uint4*>(step_.piece_bytes + (at_ + low) * kPieceBytes + part * 32);
    uint4 eight[2] = {masses[0], masses[1]};
    found = false;
    float mass = 0;
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const uint4& words = eight[i / 8];
      const uint32_t word = i / 2 % 4 == 0   ? words.x
                            : i / 2 % 4 == 1 ? words.y
                            : i / 2 % 4 == 2 ? words.z
                                             : words.w;
      const float2 two = ElementOf<__half>::pair(word);
      const float here = i % 2 ? two.y : two.x;
      const auto units = static_cast<uint32_t>(here * kMassUnits);
      if (found) continue;
      if (units >= target) {
        found = true;
        mass = here;
      } else {
        target -= units;
        ++drawn.key;
      }
    }
    drawn.log_mass = log2f(mass) + 1 + own;
    drawn.row = first + static_cast<uint32_t>(drawn.key - from);
    return drawn;
  }

  // In the pool, in rows of head_dim: the pool has fewer than 2^32.
  __device__ uint32_t rowOf(int key) const {
    const int page =
        step_.page_table[static_cast<int64_t>(row_) * step_.max_pages + (key >> step_.page_shift)];
    const bool good = static_cast<uint32_t>(page) < static_cast<uint64_t>(step_.pages);
    const uint32_t first = static_cast<uint32_t>((good ? page : 0) * step_.kv_heads + kv_head_)
                           << step_.page_shift;
    return first + (key & ((1 << step_.page_shift) - 1));
  }

  __device__ uint4 loadRow(const void* pool, uint32_t row) const {
    return __ldg(reinterpret_cast<const uint4*>(static_cast<const T*>(pool) +
                                                static_cast<int64_t>(row) * kDim) +
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

  // This lane's eight elements of the rows of draws draw(0), draw(1), ... of a batch.
  __device__ int draw(int i) const { return i * kStride + warp_ * kRows + lane_ / kLanes; }
  __device__ void loadRows(const void* pool, int count, uint4 (&rows)[kAhead]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      rows[i] = draw(i) < count ? loadRow(pool, shared_.rows[draw(i)]) : uint4{};
    }
  }

  __device__ void fetchRows(const void* pool, int count) const {
    constexpr int kLines = kDim * 2 / 128;
    for (int i = tid_; i < count * kLines; i += kFinishThreads) {
      const auto* at = static_cast<const uint8_t*>(pool) +
                       static_cast<uint64_t>(shared_.rows[i / kLines]) * (kDim * 2) +
                       i % kLines * 128;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
  }

  __device__ void sample() {
    auto* prefix = reinterpret_cast<uint64_t*>(memory_);
    const float reference = largestReference();
    float exponentials;
    const uint64_t total = scanMasses(reference, prefix, &exponentials);
    if (kTop ? !(exponentials > 0) : total == 0) {
      for (uint32_t m = tid_; step_.draw_keys && m < budget_; m += kFinishThreads) {
        step_.draw_keys[listAt() + m] = -1;
      }
      fill(exponentials == exponentials ? 0.0f : notANumber(), minusInfinity());
      return;
    }
    if (!kRescores) setLse((reference + log2f(exponentials)) * kLn2);
    if constexpr (kTop) takeLargest();

    float out[8] = {};
    float weights = 0;    // sum over draws, relative to 2^top
    float top = kNoKeys;  // the largest weight so far, in powers of two
    Systematic all{};
    if constexpr (kSamples) all = systematic(total);
    for (uint32_t first = 0; first < budget_; first += kBatch) {
      const int count = static_cast<int>(min(budget_ - first, uint32_t{kBatch}));
      __syncthreads();
      if (tid_ < count) {
        int key;
        if constexpr (kTop) {
          key = step_.draw_keys[listAt() + first + tid_];
          shared_.rows[tid_] = rowOf(key);
          shared_.weights[tid_] = kRescores ? 0.0f : step_.scores[at_ * kPieceKeys + key];
        } else {
          const Drawn drawn = find(threshold(first + tid_, total, all), prefix, reference);
          key = drawn.key;
          shared_.rows[tid_] = drawn.row;
          if (kRescores) shared_.weights[tid_] = drawn.log_mass;
        }
        if (kRescores) {
          shared_.biases[tid_] = step_.bias ? step_.bias[row_ * step_.bias_stride + key] : 0.0f;
        }
        if (step_.draw_keys) {
          if (!kTop) step_.draw_keys[listAt() + first + tid_] = key;
          if (!kWeighs) {
            step_.draw_weights[listAt() + first + tid_] = 1.0f / static_cast<float>(budget_);
          }
        }
      }
      __syncthreads();
      uint4 values[kAhead];
      if (!kRescores) loadRows(step_.values, count, values);
      if (kRescores) {
        // Values come into the L2 cache meanwhile: registers for both are too many.
        fetchRows(step_.values, count);
        importance(count);
        __syncthreads();
      }
      if (kWeighs) {
        const float own = tid_ < count ? shared_.weights[tid_] : minusInfinity();
        if (step_.draw_keys && tid_ < count) step_.draw_weights[listAt() + first + tid_] = own;
        const float raised = fmaxf(top, largest(own));
        const float factor = power2(top - raised);
        top = raised;
        const float weight = power2(own - top);
        if (tid_ < count) shared_.weights[tid_] = weight;
        weights = weights * factor + sum(weight);  // and a barrier
#pragma unroll
        for (int i = 0; i < 8; ++i) out[i] *= factor;
      }
      if (kRescores) loadRows(step_.values, count, values);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (i * kStride >= count) break;
        const float weight = draw(i) >= count ? 0.0f : kWeighs ? shared_.weights[draw(i)] : 1.0f;
        unpack(values[i], [&](int j, float x) { out[j] += weight * x; });
      }
    }
    if (!kWeighs) weights = static_cast<float>(budget_);
    for (uint32_t m = tid_; kWeighs && step_.draw_keys && tid_ < kBatch && m < budget_;
         m += kBatch) {
      float& weight = step_.draw_weights[listAt() + m];
      weight = weights > 0 ? power2(weight - top) / weights : 0.0f;
    }
    if (kRescores) {
      float scale = top;
      // Draws: the proposal's normaliser times the mean importance weight.
      if (!kTop) {
        scale += reference - 23 - static_cast<float>(keptBits(pieces_)) +
                 log2f(static_cast<float>(total) / static_cast<float>(budget_));
      }
      setLse(weights > 0 ? (scale + log2f(weights)) * kLn2 : minusInfinity());
    }
    // Kept keys may all be masked, or so light beside what is not kept that nothing is left.
    reduceRows(out, weights > 0 ? 1.0f / weights : 0.0f);
  }

  // ---- The largest scores; of equal ones the older.

  // Larger floats to larger integers.
  __device__ static uint32_t ordered(float x) {
    const uint32_t bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
  }

  // draw_keys: the budget_ keys of the largest scores, ascending by key.
  __device__ void takeLargest() {
    const float* scores = step_.scores + at_ * kPieceKeys;
    // The score of the last that is taken, eight bits at a time, and how many are as large.
    uint32_t least = 0, known = 0;
    uint32_t wanted = budget_;  // among those whose upper bits are those of `least`
    for (int shift = 24; shift >= 0; shift -= 8) {
      shared_.counts[tid_] = 0;
      __syncthreads();
      for (int j = tid_; j < n_; j += kFinishThreads) {
        const uint32_t x = ordered(scores[j]);
        if ((x & known) == least) atomicAdd(&shared_.counts[x >> shift & 255], 1u);
      }
      __syncthreads();
      // Thread i: how many have a digit of 255 - i and above.
      const uint32_t own = shared_.counts[255 - tid_];
      uint32_t above = own;
      for (int i = 1; i < 32; i *= 2) {
        const uint32_t left = __shfl_up_sync(kAll, above, i);
        if (lane_ >= i) above += left;
      }
      if (lane_ == 31) shared_.warp_ties[warp_] = above;
      __syncthreads();
      for (int w = 0; w < warp_; ++w) above += shared_.warp_ties[w];
      if (above >= wanted && above - own < wanted) {
        shared_.digit = 255 - tid_;
        shared_.wanted = wanted - (above - own);
      }
      __syncthreads();
      least |= shared_.digit << shift;
      wanted = shared_.wanted;
      known |= 255u << shift;
      __syncthreads();
    }
    // Each warp a stretch of keys: first it counts, then it knows where its own go.
    const int stretch = ((n_ + kFinishWarps - 1) / kFinishWarps + 31) / 32 * 32;
    const int begin = min(warp_ * stretch, n_), end = min(begin + stretch, n_);
    uint32_t ties = 0, larger = 0;
    for (int j = begin + lane_; j - lane_ < end; j += 32) {
      const uint32_t x = j < end ? ordered(scores[j]) : 0;
      ties += __popc(__ballot_sync(kAll, j < end && x == least));
      larger += __popc(__ballot_sync(kAll, j < end && x > least));
    }
    if (lane_ == 0) {
      shared_.warp_ties[warp_] = ties;
      shared_.warp_larger[warp_] = larger;
    }
    __syncthreads();
    ties = larger = 0;
    for (int w = 0; w < warp_; ++w) {
      ties += shared_.warp_ties[w];
      larger += shared_.warp_larger[w];
    }
    uint32_t place = larger + min(ties, wanted);
    const uint32_t before = (1u << lane_) - 1;
    for (int j = begin + lane_; j - lane_ < end; j += 32) {
      const uint32_t x = j < end ? ordered(scores[j]) : 0;
      const bool tie = j < end && x == least;
      const uint32_t tied = __ballot_sync(kAll, tie);
      const bool taken = (j < end && x > least) || (tie && ties + __popc(tied & before) < wanted);
      const uint32_t all = __ballot_sync(kAll, taken);
      if (taken) step_.draw_keys[listAt() + place + __popc(all & before)] = j;
      ties += __popc(tied);
      place += __popc(all);
    }
    __syncthreads();
  }

  // shared_.weights: from log2 of masses to log2 of importance weights exp(s) / mass.
  __device__ void importance(int count) {
    uint4 keys[kAhead];
    loadRows(step_.keys, count, keys);
    // First every sum over lanes, while all lanes are together; rows beyond the count are zeros.
    float dots[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      float dot = 0;
      unpack(keys[i], [&](int j, float x) { dot += query_[j] * x; });
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        dot += __shfl_xor_sync(kAll, dot, apart);
      }
      dots[i] = dot;
    }
    if (lane_ % kLanes != 0) return;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (draw(i) >= count) break;
      const float score = step_.scale * dots[i];
      if (!isNumber(score)) report(step_, Wrong::kScore, row_, kv_head_);
      float& weight = shared_.weights[draw(i)];
      weight = (score + shared_.biases[draw(i)]) * kLog2E - weight;
    }
  }

  // What the lanes and warps summed, in order.
  __device__ void reduceRows(float (&out)[8], float factor) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      for (int apart = kLanes; apart < 32; apart *= 2) {
        out[i] += __shfl_xor_sync(kAll, out[i], apart);
      }
    }
    __syncthreads();
    if (lane_ < kLanes) {
#pragma unroll
      for (int i = 0; i < 8; ++i) shared_.sums[warp_][lane_ * 8 + i] = out[i];
    }
    __syncthreads();
    if (tid_ >= kDim) return;
    float total = 0;
    for (int w = 0; w < kFinishWarps; ++w) total += shared_.sums[w][tid_];
    output()[tid_] = total * factor;
  }

  const Step& step_;
  FinishShared<kDim>& shared_;
  uint8_t* memory_;
  int tid_, lane_, warp_;
  int row_, head_, kv_head_, n_, pieces_;
  uint32_t budget_;
  int64_t at_;
  Piece piece_{};  // of index tid_
  RowKind kind_;
  uint32_t offset_ = 0;             // of systematic draws
  float query_[kRescores ? 8 : 1];  // this lane's channels
};

template <int kDim, typename T, Sweep kFrom, bool kTop>
__global__ void __launch_bounds__(kFinishThreads, kFrom == Sweep::kShadow || kTop ? 2 : 4)
    finishKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(16) uint8_t memory[];  // max_pieces + 1 sums
  __shared__ FinishShared<kDim> shared;
  // What does not depend on the sweep is read while it ends.
  FinishHead<kDim, T, kFrom, kTop> head(step, shared, memory);
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  head.run();
}

}  // namespace allot::kernels::cuda
