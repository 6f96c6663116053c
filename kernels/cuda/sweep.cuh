#pragma once
// The sweep over keys (step.h). Every warp works alone: it walks over its pieces and keeps its own
// ring of copies from global to shared memory in flight, which runs ahead over the ends of pieces,
// so that no barrier of a block and no latency of a piece stops the flow of bytes.
//
// Products, for 16 keys at a time (m16n8k16): keys are the rows of A as they lie in memory;
// column 2h of B is query head h rounded to the cache's element, column 2h + 1 what the rounding
// left; so lane 4g + t holds the two halves of the scores of head t for keys g and g + 8, in
// float32. Values are the rows of A transposed, and probabilities go into B in the same two parts.
// Shared memory: rows of head_dim elements, 16-byte chunks swizzled by the row's number, so that
// neither copies nor matrix loads meet in a bank.
#include "allot/kernels/philox.h"
#include "kernels/cuda/primitives.cuh"

namespace allot::kernels::cuda {

constexpr int kMassRow = kPieceKeys * 2 + 16;  // bytes of one head's masses in scratch, padded

template <int kDim, Sweep kSweep>
struct SweepLayout {
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kTileBytes = kPart * kRowBytes;  // also the codes of 64 keys
  static constexpr int kScaleBytes = kSweep == Sweep::kShadow ? 256 : 0;
  static constexpr int kSlotBytes = kTileBytes + kScaleBytes;
  static constexpr int kSlots = kSweep == Sweep::kFlash ? 4 : 6;
  static constexpr int kGatherSlots = kSweep == Sweep::kFlash ? 2 : 0;
  static constexpr int kScratch = kSweep == Sweep::kExact ? 0 : kQuad * kMassRow;
  static constexpr int kWarpBytes = (kSlots + kGatherSlots) * kSlotBytes + kScratch;
};

// One piece of one KV head, for up to kQuad of its query heads.
struct Work {
  int row;
  int kv_head;
  int quad;
  int piece;
  int first;  // key
  int count;  // keys
  bool exact;
};

template <int kDim, typename T, Sweep kSweep>
class SweepWarp {
  using Layout = SweepLayout<kDim, kSweep>;
  using Elements = ElementOf<T>;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes in a row
  static constexpr int kSteps = kDim / 16;
  static constexpr int kScores = kPieceKeys * kQuad / 32;  // a lane's

 public:
  __device__ SweepWarp(const Step& step, const int* row_pieces, uint8_t* memory)
      : step_(step),
        row_pieces_(row_pieces),
        scratch_(memory + (Layout::kSlots + Layout::kGatherSlots) * Layout::kSlotBytes),
        ring_(sharedAddress(memory)),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4) {
    const int group = step.heads / step.kv_heads;
    quads_ = (group + kQuad - 1) / kQuad;
    items_ = row_pieces[step.rows] * step.kv_heads * quads_;
    stride_ = gridDim.x * (blockDim.x / 32);
    start_ = (threadIdx.x / 32) * gridDim.x + blockIdx.x;  // few pieces: one to a block
  }

  __device__ void run() {
    next_item_ = start_;
    lookAhead();
    open();
    for (int i = 0; i < Layout::kSlots; ++i) issue();
    for (int item = start_; item < items_; item += stride_) {
      const Work work = find(item);
      if (work.exact) {
        exactPiece(work);
      } else if constexpr (kSweep != Sweep::kExact) {
        sampledPiece(work);
      }
    }
    waitCopies<0>();
  }

 private:
  // ---- Which work, and its bytes.

  __device__ Work find(int item) const {
    const int inner = step_.kv_heads * quads_;
    const int outer = item / inner, within = item % inner;
    int low = 0, high = step_.rows;  // row_pieces[low] <= outer < row_pieces[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (row_pieces_[middle] <= outer ? low : high) = middle;
    }
    Work work;
    work.row = low;
    work.kv_head = within / quads_;
    work.quad = within % quads_;
    work.piece = outer - row_pieces_[low];
    work.first = work.piece * kPieceKeys;
    work.count = min(kPieceKeys, step_.lengths[low] - work.first);
    work.exact = kSweep == Sweep::kExact || kindOf(step_, low) == RowKind::kExact;
    return work;
  }

  // Lane i: the page of keys 16 i .. 16 i + 15 of the piece.
  __device__ int pagesOf(const Work& work) const {
    if (lane_ >= kParts || lane_ * kPart >= work.count) return 0;
    const int page = (work.first + lane_ * kPart) >> step_.page_shift;
    return step_.page_table[static_cast<int64_t>(work.row) * step_.max_pages + page];
  }

  // The piece after the one being copied, and its pages, are fetched one piece ahead.
  __device__ void lookAhead() {
    has_ahead_ = next_item_ < items_;
    if (!has_ahead_) return;
    ahead_ = find(next_item_);
    ahead_pages_ = pagesOf(ahead_);
    next_item_ += stride_;
  }

  __device__ void open() {
    loading_ = has_ahead_;
    if (!loading_) return;
    load_ = ahead_;
    load_pages_ = ahead_pages_;
    const bool bad = lane_ < kParts && lane_ * kPart < load_.count &&
                     static_cast<uint32_t>(load_pages_) >= static_cast<uint64_t>(step_.pages);
    if (__any_sync(kAll, bad)) {
      if (lane_ == 0) report(step_, Wrong::kPage, load_.row, load_.kv_head);
      if (bad) load_pages_ = -1;
    }
    load_slot_ = 0;
    const int tiles = (load_.count + kPart - 1) / kPart;
    load_slots_ = load_.exact ? 2 * tiles : kSweep == Sweep::kShadow ? (tiles + 3) / 4 : tiles;
    lookAhead();
  }

  // The position of a key in the pool, in rows of head_dim.
  __device__ int64_t position(int page, int kv_head, int key) const {
    const int within = key & ((1 << step_.page_shift) - 1);
    return ((static_cast<int64_t>(page) * step_.kv_heads + kv_head) << step_.page_shift) + within;
  }

  // The next slot of the ring is filled, or left if there is no more to copy.
  __device__ void issue() {
    if (loading_) {
      const uint32_t to = ring_ + ring_head_ * Layout::kSlotBytes;
      if (load_.exact || kSweep != Sweep::kShadow) {
        const int tile = load_.exact ? load_slot_ / 2 : load_slot_;
        const void* pool = load_.exact && load_slot_ % 2 ? step_.values : step_.keys;
        copyTile(to, pool, tile);
      } else {
        copyCodes(to);
      }
      if (++load_slot_ == load_slots_) open();
    }
    commitCopies();
    ring_head_ = ring_head_ + 1 == Layout::kSlots ? 0 : ring_head_ + 1;
  }

  __device__ void copyTile(uint32_t to, const void* pool, int tile) const {
    const int page = __shfl_sync(kAll, load_pages_, tile);
    const int key = tile * kPart;
    const T* from = static_cast<const T*>(pool) +
                    position(max(page, 0), load_.kv_head, load_.first + key) * kDim;
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      const int at = j * 32 + lane_;
      const int row = at / kChunks, chunk = at % kChunks;
      copyAsync(to + row * Layout::kRowBytes + ((chunk ^ (row & 7)) << 4),
                from + row * kDim + chunk * 8, page >= 0 && key + row < load_.count);
    }
  }

  // Codes and scales of 64 keys: lane (g, t) copies what it will itself use, of keys 4 (g % 4) ..
  // + 3 of tile g / 4 of each 32 keys, the feature groups t, t + 4, ...; lanes with t = 0 the
  // scales.
  __device__ void copyCodes(uint32_t to) const {
    if constexpr (kSweep == Sweep::kShadow) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile = load_slot_ * 4 + half * 2 + g_ / 4;
        const int page = __shfl_sync(kAll, load_pages_, tile);
        const bool valid = page >= 0 && tile * kPart < load_.count;
        const int64_t at =
            position(valid ? page : 0, load_.kv_head, load_.first + (valid ? tile * kPart : 0));
        const uint8_t* codes = step_.codes + at / kPart * (kDim * 8) + t_ * 64 + g_ % 4 * 16;
#pragma unroll
        for (int v = 0; v < kDim / 32; ++v) {
          copyAsync(to + half * (16 * kDim) + v * 512 + lane_ * 16, codes + v * 256, valid);
        }
        if (t_ == 0) {
          copyAsync(to + Layout::kTileBytes + half * 128 + g_ * 16,
                    step_.code_scales + at + g_ % 4 * 4, valid);
        }
      }
    }
  }

  // The oldest slot has arrived; its address.
  __device__ uint32_t await() {
    waitCopies<Layout::kSlots - 1>();
    __syncwarp();
    return ring_ + ring_tail_ * Layout::kSlotBytes;
  }
  // It has been read: the ring goes on.
  __device__ void release() {
    __syncwarp();
    ring_tail_ = ring_tail_ + 1 == Layout::kSlots ? 0 : ring_tail_ + 1;
    issue();
  }

  // ---- Queries.

  __device__ int headOf(const Work& work, int in_quad) const {
    return work.kv_head * (step_.heads / step_.kv_heads) + work.quad * kQuad + in_quad;
  }
  __device__ bool hasHead(const Work& work, int in_quad) const {
    return work.quad * kQuad + in_quad < step_.heads / step_.kv_heads;
  }
  __device__ const float* queryOf(const Work& work, int in_quad) const {
    return step_.queries +
           (static_cast<int64_t>(work.row) * step_.heads + headOf(work, in_quad)) * kDim;
  }

  // B of the products with keys.
  __device__ void takeQueries(const Work& work) {
    const int name = (work.row * step_.kv_heads + work.kv_head) * quads_ + work.quad;
    if (name == queries_of_) return;
    queries_of_ = name;
    const bool there = hasHead(work, g_ / 2);
    const float* query = queryOf(work, there ? g_ / 2 : 0);
    int exponent = 0;
    if constexpr (Elements::kScalesQueries) {
      float largest = 0;
      for (int i = t_; i < kDim; i += 4) largest = fmaxf(largest, fabsf(query[i]));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      exponent = largest > 0 && isNumber(largest) ? ilogbf(largest) : 0;
    }
    const auto part = [&](float x) {
      const uint32_t both = twoParts<T>(there ? scalbnf(x, -exponent) : 0.0f);
      return g_ % 2 ? both >> 16 : both & 0xffff;
    };
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const float2 low = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t_);
      const float2 high = *reinterpret_cast<const float2*>(query + 16 * k + 2 * t_ + 8);
      query_[k][0] = part(low.x) | part(low.y) << 16;
      query_[k][1] = part(high.x) | part(high.y) << 16;
    }
    // Of head t, whose parts are in columns 2t and 2t + 1.
    scale_ = scalbnf(step_.scale, __shfl_sync(kAll, exponent, 8 * t_));
  }

  // The same in 8 bits, for codes; column 2h is head h.
  __device__ void takeByteQueries(const Work& work) {
    if constexpr (kSweep == Sweep::kShadow) {
      const int name = (work.row * step_.kv_heads + work.kv_head) * quads_ + work.quad;
      if (name == byte_queries_of_) return;
      byte_queries_of_ = name;
      const bool there = g_ % 2 == 0 && hasHead(work, g_ / 2);
      const float* query = queryOf(work, there ? g_ / 2 : 0);
      float largest = 0;
      for (int i = t_; i < kDim; i += 4) largest = fmaxf(largest, fabsf(query[i]));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      // So small that its inverse is not a number: as good as zero.
      const bool zero = !there || largest < 1e-30f;
      const float inverse = 127.0f / largest;
      int total = 0;
      const auto four = [&](const float* from) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int rounded = zero ? 0 : static_cast<int>(rintf(from[i] * inverse));
          total += rounded;
          word |= (rounded & 0xff) << (8 * i);
        }
        return word;
      };
#pragma unroll
      for (int v = 0; v < kDim / 32; ++v) {
        byte_query_[v][0] = four(query + 8 * (t_ + 4 * v));
        byte_query_[v][1] = four(query + 8 * (t_ + 4 * v) + 4);
      }
      total += __shfl_xor_sync(kAll, total, 1);
      total += __shfl_xor_sync(kAll, total, 2);
      const float factor = zero ? 0.0f : __fmul_rn(largest / 127.0f, step_.scale);
      byte_offset_ = __shfl_sync(kAll, total, 8 * t_) << 3;
      byte_factor_ = __shfl_sync(kAll, factor, 8 * t_);
    }
  }

  // ---- Scores.

  // Scores of head t in powers of two; flags those that are not finite.
  __device__ float finished(float score, bool there, float bias) {
    if (!there) return minusInfinity();
    wrong_ |= !isNumber(score);
    if (step_.bias) {
      score += bias;
      wrong_ |= !(score <= kLargest);
    }
    return score * kLog2E;
  }
  __device__ float biasOf(const Work& work, int key) const {
    if (!step_.bias || key >= work.count) return 0;
    return step_.bias[work.row * step_.bias_stride + work.first + key];
  }

  // The products of 16 keys with all heads: [0] for key g, [1] for key g + 8.
  __device__ void scoreTile(const Work& work, int tile, uint32_t keys, float (&scores)[2]) {
    const uint32_t row = keys + ((lane_ & 7) + (lane_ & 8)) * Layout::kRowBytes;
    float even[4] = {}, odd[4] = {};  // two sums: one would wait for itself
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      loadMatrices(a, row + (((2 * k + lane_ / 16) ^ (lane_ & 7)) << 4));
      Elements::multiply(k % 2 ? odd : even, a, query_[k][0], query_[k][1]);
    }
    const int key = tile * kPart + g_;
    const bool there = hasHead(work, t_);
    scores[0] = finished(scale_ * ((even[0] + odd[0]) + (even[1] + odd[1])),
                         there && key < work.count, biasOf(work, key));
    scores[1] = finished(scale_ * ((even[2] + odd[2]) + (even[3] + odd[3])),
                         there && key + 8 < work.count, biasOf(work, key + 8));
  }

  __device__ void tell(const Work& work) {
    if (__any_sync(kAll, wrong_) && lane_ == 0) {
      report(step_, Wrong::kScore, work.row, work.kv_head);
    }
    wrong_ = false;
  }

  __device__ static float overKeys(float x) {  // the sum over lanes of one head
    x += __shfl_xor_sync(kAll, x, 4);
    x += __shfl_xor_sync(kAll, x, 8);
    return x + __shfl_xor_sync(kAll, x, 16);
  }
  __device__ static float largestOverKeys(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 4));
    x = fmaxf(x, __shfl_xor_sync(kAll, x, 8));
    return fmaxf(x, __shfl_xor_sync(kAll, x, 16));
  }

  // total += V^T p for 16 value rows; p as B in two words.
  __device__ void addValues(uint32_t values, uint32_t b0, uint32_t b1, float (&total)[kSteps][4]) {
    const uint32_t row = values + ((lane_ & 7) + (lane_ >> 4) * 8) * Layout::kRowBytes;
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      uint32_t a[4];
      loadTransposed(a, row + (((2 * m + (lane_ >> 3 & 1)) ^ (lane_ & 7)) << 4));
      Elements::multiply(total[m], a, b0, b1);
    }
  }

  __device__ void store(const Work& work, const float (&total)[kSteps][4], float factor) const {
    if (!hasHead(work, t_)) return;
    const int64_t at = pieceIndex(step_, work.row, headOf(work, t_), work.piece);
    float* to = reinterpret_cast<float*>(step_.piece_bytes + at * kPieceBytes);
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      to[16 * m + g_] = (total[m][0] + total[m][1]) * factor;
      to[16 * m + 8 + g_] = (total[m][2] + total[m][3]) * factor;
    }
  }

  // ---- Exact rows.

  __device__ void exactPiece(const Work& work) {
    takeQueries(work);
    // Exponents are relative to a score that has been the largest, or up to 2^8 less than that.
    float reference = kNoKeys, sum = 0;
    float total[kSteps][4] = {};
    const int tiles = (work.count + kPart - 1) / kPart;
    for (int tile = 0; tile < tiles; ++tile) {
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
    float s[kScores];
    if constexpr (kSweep == Sweep::kShadow) {
      shadowScores(work, s);
    } else {
      takeQueries(work);
#pragma unroll
      for (int tile = 0; tile < kParts; ++tile) {
        float two[2] = {minusInfinity(), minusInfinity()};
        if (tile * kPart < work.count) {
          scoreTile(work, tile, await(), two);
          release();
        }
        s[2 * tile] = two[0];
        s[2 * tile + 1] = two[1];
      }
    }
    tell(work);
    float top = s[0];
#pragma unroll
    for (int i = 1; i < kScores; ++i) top = fmaxf(top, s[i]);
    top = largestOverKeys(top);
    const float reference = top >= kNoKeys ? ceilf(top) : kNoKeys;
    float sum = 0;
    __half mass[kScores];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float p = power2(s[i] - reference);
      sum += p;
      mass[i] = __float2half_rn(0.5f * p);
    }
    sum = overKeys(sum);
    // To scratch, key by key.
    uint8_t* row = scratch_ + t_ * kMassRow;
    if constexpr (kSweep == Sweep::kShadow) {
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i) {  // four keys in a row
        const int key = i * 32 + g_ / 4 * 16 + g_ % 4 * 4;
        uint2 four;
        const __half2 low = __halves2half2(mass[4 * i], mass[4 * i + 1]);
        const __half2 high = __halves2half2(mass[4 * i + 2], mass[4 * i + 3]);
        memcpy(&four.x, &low, 4);
        memcpy(&four.y, &high, 4);
        *reinterpret_cast<uint2*>(row + key * 2) = four;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int key = i / 2 * kPart + i % 2 * 8 + g_;
        *reinterpret_cast<__half*>(row + key * 2) = mass[i];
      }
    }
    __syncwarp();
    if constexpr (kSweep == Sweep::kFlash) {
      drawAndGather(work, reference, sum);
    } else {
      storeMasses(work, reference, sum);
    }
    __syncwarp();
  }

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

  __device__ void storeMasses(const Work& work, float reference, float sum) const {
#pragma unroll
    for (int h = 0; h < kQuad; ++h) {
      if (!hasHead(work, h)) continue;
      const uint4 eight = *reinterpret_cast<const uint4*>(scratch_ + h * kMassRow + lane_ * 16);
      uint32_t units[8];
      const uint32_t own = unitsOf(eight, units);
      const uint32_t part = own + __shfl_xor_sync(kAll, own, 1);
      uint32_t all = part;
#pragma unroll
      for (int i = 2; i < 32; i *= 2) all += __shfl_xor_sync(kAll, all, i);
      const int64_t at = pieceIndex(step_, work.row, headOf(work, h), work.piece);
      *reinterpret_cast<uint4*>(step_.piece_bytes + at * kPieceBytes + lane_ * 16) = eight;
      if (lane_ % 2 == 0) step_.part_masses[at * kParts + lane_ / 2] = part;
      if (lane_ == h) step_.pieces[at] = {reference, all, sum, 0};
    }
  }

  __device__ void shadowScores(const Work& work, float (&s)[kScores]) {
    if constexpr (kSweep == Sweep::kShadow) {
      takeByteQueries(work);
      const bool there = hasHead(work, t_);
#pragma unroll
      for (int slot = 0; slot < kPieceKeys / 64; ++slot) {
        if (slot * 64 >= work.count) {
#pragma unroll
          for (int i = 0; i < 8; ++i) s[8 * slot + i] = minusInfinity();
          continue;
        }
        const uint32_t at = await();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int first[4] = {}, second[4] = {};
#pragma unroll
          for (int v = 0; v < kDim / 32; ++v) {
            const uint4 words = loadShared(at + half * (16 * kDim) + v * 512 + lane_ * 16);
            constexpr uint32_t kLow = 0x0f0f0f0f;
            const uint32_t a[4] = {words.x & kLow, words.y & kLow, words.x >> 4 & kLow,
                                   words.y >> 4 & kLow};
            multiplyBytes(first, a, byte_query_[v][0], byte_query_[v][1]);
            const uint32_t b[4] = {words.z & kLow, words.w & kLow, words.z >> 4 & kLow,
                                   words.w >> 4 & kLow};
            multiplyBytes(second, b, byte_query_[v][0], byte_query_[v][1]);
          }
          const uint4 bits = loadShared(at + Layout::kTileBytes + half * 128 + g_ * 16);
          const float scales[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                                   __uint_as_float(bits.z), __uint_as_float(bits.w)};
          const int dots[4] = {first[0], first[2], second[0], second[2]};
          const int key = slot * 64 + half * 32 + g_ / 4 * 16 + g_ % 4 * 4;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            // Products only, so that the CPU's bits come out.
            const float score = __fmul_rn(static_cast<float>(dots[i] - byte_offset_),
                                          __fmul_rn(byte_factor_, scales[i]));
            s[8 * slot + 4 * half + i] =
                finished(score, there && key + i < work.count, biasOf(work, key + i));
          }
        }
        release();
      }
    }
  }

  __device__ static uint4 loadShared(uint32_t at) {
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(at)
                 : "memory");
    return words;
  }

  // ---- s2anta-flash: draws of this piece, and the mean of their values.

  __device__ void drawAndGather(const Work& work, float reference, float sum) {
    if constexpr (kSweep == Sweep::kFlash) {
      const int pieces = row_pieces_[work.row + 1] - row_pieces_[work.row];
      const uint32_t samples = drawsOfPiece(step_.budgets[work.row], pieces);
      uint32_t offset = 0;
      if (lane_ < kQuad) {
        const uint32_t stream = step_.layer << 16 | static_cast<uint32_t>(headOf(work, lane_));
        offset = philox(step_.seed, step_.sequences[work.row], step_.steps[work.row], stream,
                        static_cast<uint32_t>(work.piece))[0] >>
                 8;
      }
      uint32_t counts[8] = {};  // of keys 8 lane .. + 7: a byte a head, at most 255 draws
#pragma unroll
      for (int h = 0; h < kQuad; ++h) {
        if (!hasHead(work, h)) continue;
        const uint4 eight = *reinterpret_cast<const uint4*>(scratch_ + h * kMassRow + lane_ * 16);
        uint32_t units[8];
        uint32_t before = unitsOf(eight, units);
        const uint32_t own = before;
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
          const uint32_t left = __shfl_up_sync(kAll, before, i);
          if (lane_ >= i) before += left;
        }
        const uint32_t all = __shfl_sync(kAll, before, 31);
        before -= own;
        const int64_t at = pieceIndex(step_, work.row, headOf(work, h), work.piece);
        if (lane_ == h) step_.pieces[at] = {reference, all, sum, 0};
        int32_t* list = step_.draw_keys;
        if (list) {
          list +=
              (static_cast<int64_t>(work.row) * step_.heads + headOf(work, h)) * step_.draw_stride +
              work.piece * samples;
        }
        if (all == 0) {
          for (uint32_t m = lane_; list && m < samples; m += 32) list[m] = -1;
          continue;
        }
        // Draws on keys up to a prefix P: floor(S P / W + u), in integers.
        const uint64_t u = static_cast<uint64_t>(__shfl_sync(kAll, offset, h)) * all;
        const uint64_t divisor = static_cast<uint64_t>(all) << 24;
        const double inverse = 1.0 / static_cast<double>(divisor);
        const auto drawn = [&](uint32_t prefix) {
          return static_cast<uint32_t>(
              quotient((static_cast<uint64_t>(prefix) * samples << 24) + u, divisor, inverse));
        };
        uint32_t reached = drawn(before);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          before += units[i];
          if (units[i] == 0) continue;
          const uint32_t now = drawn(before);
          counts[i] |= (now - reached) << (8 * h);
          for (uint32_t m = reached; list && m < now; ++m) list[m] = work.first + 8 * lane_ + i;
          reached = now;
        }
      }
      __syncwarp();
      // Keys that some head drew, in order: their counts, and which they are.
      auto* counted = reinterpret_cast<uint32_t*>(scratch_);
      uint8_t* keys = scratch_ + kPieceKeys * sizeof(uint32_t);
      int place = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) place += counts[i] != 0;
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
      gather(work, counted, keys, drawn, 1.0f / static_cast<float>(samples));
    }
  }

  __device__ void gather(const Work& work, const uint32_t* counted, const uint8_t* keys, int drawn,
                         float factor) {
    if constexpr (kSweep == Sweep::kFlash) {
      const int pages = pagesOf(work);
      const auto fetch = [&](int group) {
        const uint32_t to = ring_ + (Layout::kSlots + group % 2) * Layout::kSlotBytes;
#pragma unroll
        for (int j = 0; j < kDim / 16; ++j) {
          const int at = j * 32 + lane_;
          const int row = at / kChunks, chunk = at % kChunks;
          const int index = group * kPart + row;
          const bool valid = index < drawn;
          const int key = valid ? keys[index] : 0;
          const int page = __shfl_sync(kAll, pages, key / kPart);
          const bool good = static_cast<uint32_t>(page) < static_cast<uint64_t>(step_.pages);
          const T* from = static_cast<const T*>(step_.values) +
                          position(good ? page : 0, work.kv_head, work.first + key) * kDim;
          copyAsync(to + row * Layout::kRowBytes + ((chunk ^ (row & 7)) << 4), from + chunk * 8,
                    valid && good);
        }
        commitCopies();
      };
      const int groups = (drawn + kPart - 1) / kPart;
      float total[kSteps][4] = {};
      if (groups > 0) fetch(0);
      for (int group = 0; group < groups; ++group) {
        if (group + 1 < groups) {
          fetch(group + 1);
          waitCopies<1>();
        } else {
          waitCopies<0>();
        }
        __syncwarp();
        const auto weight = [&](int row) -> uint32_t {
          const int index = group * kPart + row;
          if (g_ % 2 || index >= drawn) return 0;
          const T count = Elements::of(static_cast<float>(counted[index] >> (4 * g_) & 0xff));
          uint16_t bits;
          memcpy(&bits, &count, sizeof bits);
          return bits;
        };
        const uint32_t b0 = weight(2 * t_) | weight(2 * t_ + 1) << 16;
        const uint32_t b1 = weight(2 * t_ + 8) | weight(2 * t_ + 9) << 16;
        addValues(ring_ + (Layout::kSlots + group % 2) * Layout::kSlotBytes, b0, b1, total);
        __syncwarp();
      }
      store(work, total, factor);
    }
  }

  const Step& step_;
  const int* row_pieces_;  // [rows + 1], shared memory: pieces of the rows before
  uint8_t* scratch_;
  uint32_t ring_;
  int lane_, g_, t_;
  int quads_, items_, stride_, start_;

  int ring_head_ = 0, ring_tail_ = 0;
  bool loading_ = false, has_ahead_ = false;
  Work load_, ahead_;
  int load_pages_ = 0, ahead_pages_ = 0, load_slot_ = 0, load_slots_ = 0, next_item_ = 0;

  bool wrong_ = false;
  int queries_of_ = -1, byte_queries_of_ = -1;
  uint32_t query_[kSteps][2];
  float scale_ = 0;
  uint32_t byte_query_[kDim / 32][2];
  int byte_offset_ = 0;
  float byte_factor_ = 0;
};

// row_pieces[r] = pieces of rows 0..r-1 that are swept.
__device__ inline void countPieces(const Step& step, int* row_pieces) {
  __shared__ int warp_totals[32];
  __shared__ int passed;
  if (threadIdx.x == 0) passed = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = 0; first < step.rows; first += blockDim.x) {
    const int row = first + threadIdx.x;
    int pieces = 0;
    if (row < step.rows) {
      const RowKind kind = kindOf(step, row);
      if (kind == RowKind::kExact || kind == RowKind::kSampled)
        pieces = piecesOf(step.lengths[row]);
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
    if (row < step.rows) row_pieces[row] = before + sum - pieces;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) passed = before + sum;
    __syncthreads();
  }
  if (threadIdx.x == 0) row_pieces[step.rows] = passed;
  __syncthreads();
}

template <int kDim, typename T, Sweep kSweep>
__global__ void __launch_bounds__(128) sweepKernel(const __grid_constant__ Step step) {
  extern __shared__ __align__(128) uint8_t memory[];
  using Layout = SweepLayout<kDim, kSweep>;
  auto* row_pieces = reinterpret_cast<int*>(memory + blockDim.x / 32 * Layout::kWarpBytes);
  countPieces(step, row_pieces);
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  SweepWarp<kDim, T, kSweep> warp(step, row_pieces, memory + threadIdx.x / 32 * Layout::kWarpBytes);
  warp.run();
}

}  // namespace allot::kernels::cuda
