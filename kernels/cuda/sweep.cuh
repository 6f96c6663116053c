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

// Bytes of one head's scores of a piece in scratch; padded, so that the four heads of a quad are in
// other banks.
constexpr int kScoreRow = (kPieceKeys + 8) * 4;

// One warp's draws of a piece of s2anta-flash.
struct DrawScratch {
  uint32_t reached[kQuad][32];  // masses of keys 0 .. 8 i + 7
  uint32_t counts[kPieceKeys];  // draws of a key: a byte a head, at most 255
  uint32_t masses[kQuad];
  uint32_t offsets[kQuad];
  uint32_t pending[4 * kPart];  // counts of the rows that are on their way
};

template <int kDim, Sweep kSweep>
struct SweepLayout {
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kTileBytes = kPart * kRowBytes;  // also the codes of 64 keys
  static constexpr int kScaleBytes = kSweep == Sweep::kShadow ? 256 : 0;
  static constexpr int kSlotBytes = kTileBytes + kScaleBytes;
  // More slots would leave room for fewer warps, which hide more.
  static constexpr int kSlots = kSweep == Sweep::kShadow ? 2 : 3;
  // s2anta-flash: value rows of a piece, and what its draws need beside the masses.
  static constexpr int kGatherSlots = kSweep == Sweep::kFlash ? 4 : 0;
  static constexpr int kDrawBytes = kSweep == Sweep::kFlash ? sizeof(DrawScratch) : 0;
  static constexpr int kScratch =
      kSweep == Sweep::kExact ? 0 : (kQuad * kScoreRow + kDrawBytes + 255) / 256 * 256;
  static constexpr int kWarpBytes = (kSlots + kGatherSlots) * kSlotBytes + kScratch;
};

// What a block keeps of a row in shared memory.
struct RowPieces {
  int before;     // pieces of the rows before that are swept
  uint32_t keys;  // its length; the upper bit: it is exact
  __device__ int length() const { return static_cast<int>(keys & 0x7fffffff); }
  __device__ bool exact() const { return keys >> 31; }
};

// A place in a warp's share of the work. It only goes on.
struct Place {
  int outer;   // piece, counted over all rows
  int within;  // KV head and quad
  int row;
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
  static constexpr int kRowsAtOnce = 32 / kChunks;  // that a warp copies

 public:
  __device__ SweepWarp(const Step& step, const RowPieces* rows, uint8_t* memory)
      : step_(step),
        rows_(rows),
        scratch_(memory + (Layout::kSlots + Layout::kGatherSlots) * Layout::kSlotBytes),
        ring_(sharedAddress(memory)),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4) {
    const int group = step.heads / step.kv_heads;
    quads_ = (group + kQuad - 1) / kQuad;
    inner_ = step.kv_heads * quads_;
    pieces_ = rows[step.rows].before;
    // As many warps as there are KV heads and quads take a piece together, since its heads are
    // neighbours in memory, and go on to the next pieces of the row, so that queries stay. Where
    // pieces are few, teams are of warps of different blocks.
    warps_ = gridDim.x * (blockDim.x / 32);
    const int warp = (threadIdx.x / 32) * gridDim.x + blockIdx.x;
    const int teams = max(warps_ / inner_, 1);
    const int team = min(warp / inner_, teams);
    within_ = warp % inner_;
    if (pieces_ <= teams) {
      begin_ = min(team, pieces_);
      end_ = min(team + 1, pieces_);
    } else {
      begin_ = static_cast<int>(static_cast<int64_t>(pieces_) * team / teams);
      end_ = team < teams ? static_cast<int>(static_cast<int64_t>(pieces_) * (team + 1) / teams)
                          : begin_;
    }
    head_slot_ = tail_slot_ = ring_;
    // Slots begin at multiples of 256 bytes, so that another chunk is an exclusive or away.
    const int row = lane_ / kChunks, chunk = lane_ % kChunks;
    lane_offset_ = row * Layout::kRowBytes + chunk * 16;
    lane_copy_ = row * Layout::kRowBytes + ((chunk ^ row) << 4);
    lane_key_ =
        ((lane_ & 7) + (lane_ & 8)) * Layout::kRowBytes + (((lane_ >> 4) ^ (lane_ & 7)) << 4);
    lane_value_ = ((lane_ & 7) + (lane_ >> 4) * 8) * Layout::kRowBytes +
                  (((lane_ >> 3 & 1) ^ (lane_ & 7)) << 4);
  }

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
  // ---- Which work, and its bytes.

  __device__ void goOn(Place& place) const {
    if (++place.outer < end_) return;
    // Fewer warps than KV heads and quads: the others of the same pieces.
    place = {begin_, place.within + warps_, 0};
  }

  __device__ Work workAt(Place& place) const {
    while (rows_[place.row + 1].before <= place.outer) ++place.row;
    const RowPieces row = rows_[place.row];
    Work work;
    work.row = place.row;
    work.kv_head = quads_ == 1 ? place.within : place.within / quads_;
    work.quad = quads_ == 1 ? 0 : place.within % quads_;
    work.piece = place.outer - row.before;
    work.exact = kSweep == Sweep::kExact || row.exact();
    const int n = row.length();
    const int keys = work.exact ? exactPieceKeys(n) : kPieceKeys;
    work.first = work.piece * keys;
    work.count = min(keys, n - work.first);
    return work;
  }

  // Lane i: the page of keys 16 i .. 16 i + 15 of the piece.
  __device__ int pagesOf(const Work& work) const {
    if (lane_ * kPart >= work.count) return 0;
    const int page = (work.first + lane_ * kPart) >> step_.page_shift;
    return step_.page_table[static_cast<int64_t>(work.row) * step_.max_pages + page];
  }

  // The piece after the one being copied, and its pages, are fetched one piece ahead.
  __device__ void lookAhead() {
    has_ahead_ = next_.within < inner_;
    if (!has_ahead_) return;
    ahead_ = workAt(next_);
    ahead_pages_ = pagesOf(ahead_);
    goOn(next_);
  }

  __device__ void open() {
    loading_ = has_ahead_;
    if (!loading_) return;
    load_ = ahead_;
    load_pages_ = ahead_pages_;
    const bool bad = lane_ * kPart < load_.count &&
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

  // The position of a key in the pool, in rows of head_dim: a pool has fewer than 2^32.
  __device__ uint32_t position(int page, int kv_head, int key) const {
    const int within = key & ((1 << step_.page_shift) - 1);
    return (static_cast<uint32_t>(page * step_.kv_heads + kv_head) << step_.page_shift) + within;
  }

  __device__ uint32_t after(uint32_t slot) const {
    const uint32_t next = slot + Layout::kSlotBytes;
    return next == ring_ + Layout::kSlots * Layout::kSlotBytes ? ring_ : next;
  }

  // The next slot of the ring is filled, or left if there is no more to copy.
  __device__ void issue() {
    if (loading_) {
      if (load_.exact || kSweep != Sweep::kShadow) {
        const int tile = load_.exact ? load_slot_ / 2 : load_slot_;
        copyTile(load_.exact && load_slot_ % 2 ? step_.values : step_.keys, tile);
      } else {
        copyCodes();
      }
      if (++load_slot_ == load_slots_) open();
    }
    commitCopies();
    head_slot_ = after(head_slot_);
  }

  __device__ void copyTile(const void* pool, int tile) const {
    const int page = __shfl_sync(kAll, load_pages_, tile);
    const int key = tile * kPart;
    // 64 bits: a pool may have more than 4 GiB.
    const uint64_t row = position(max(page, 0), load_.kv_head, load_.first + key);
    const uint8_t* from =
        static_cast<const uint8_t*>(pool) + lane_offset_ + row * Layout::kRowBytes;
    const uint32_t to = head_slot_ + lane_copy_;
    if (page >= 0 && key + kPart <= load_.count) {
#pragma unroll
      for (int j = 0; j < kPart / kRowsAtOnce; ++j) {
        copyAsync((to ^ ((kRowsAtOnce * j & 7) << 4)) + j * 512, from + j * 512);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPart / kRowsAtOnce; ++j) {
        copyAsync((to ^ ((kRowsAtOnce * j & 7) << 4)) + j * 512, from + j * 512,
                  page >= 0 && key + j * kRowsAtOnce + lane_ / kChunks < load_.count);
      }
    }
  }

  // Codes and scales of 64 keys, tile by tile as they lie: a copy whose 16-byte chunks change their
  // order takes eight times as long. Chunk 4 p + i of a tile holds features 8 p .. 8 p + 7 of keys
  // 4 i .. 4 i + 3; i is exclusive-ored so that reads by (keys, features) meet in no bank.
  __device__ static int codeChunk(int chunk) { return chunk ^ (chunk >> 2 & 2); }

  __device__ void copyCodes() const {
    if constexpr (kSweep == Sweep::kShadow) {
      constexpr int kTileCodes = kDim * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = load_slot_ * 4 + i;
        const int page = __shfl_sync(kAll, load_pages_, tile);
        const bool valid = page >= 0 && tile * kPart < load_.count;
        const uint64_t at =
            position(valid ? page : 0, load_.kv_head, load_.first + (valid ? tile * kPart : 0));
        const uint8_t* codes = step_.codes + at * (kDim / 2) + lane_ * 16;
        const uint32_t to = head_slot_ + i * kTileCodes + codeChunk(lane_) * 16;
#pragma unroll
        for (int j = 0; j < kTileCodes / 512; ++j) copyAsync(to + j * 512, codes + j * 512, valid);
      }
      const int tile = load_slot_ * 4 + lane_ / 4 % 4;
      const int page = __shfl_sync(kAll, load_pages_, tile);
      const bool valid = page >= 0 && tile * kPart < load_.count;
      const uint64_t at =
          position(valid ? page : 0, load_.kv_head, load_.first + (valid ? tile * kPart : 0));
      if (lane_ < 16) {
        copyAsync(head_slot_ + Layout::kTileBytes + lane_ * 16,
                  step_.code_scales + at + lane_ % 4 * 4, valid);
      }
    }
  }

  // The oldest slot has arrived; its address.
  __device__ uint32_t await() {
    waitCopies<Layout::kSlots - 1>();
    __syncwarp();
    return tail_slot_;
  }
  // It has been read: the ring goes on.
  __device__ void release() {
    __syncwarp();
    tail_slot_ = after(tail_slot_);
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
    scale_ = scalbnf(step_.scale * kLog2E, __shfl_sync(kAll, exponent, 8 * t_));
  }

  // The same in 8 bits, for codes; column 2h is head h.
  __device__ void takeByteQueries(const Work& work) {
    if constexpr (kSweep == Sweep::kShadow) {
      const int name = (work.row * step_.kv_heads + work.kv_head) * quads_ + work.quad;
      if (name == byte_queries_of_) return;
      byte_queries_of_ = name;
      const bool there = g_ % 2 == 0 && hasHead(work, g_ / 2);
      const float* query = queryOf(work, there ? g_ / 2 : 0);
      // All of them are on their way at once; the four lanes of a head have every feature.
      float4 own[kDim / 32][2];
#pragma unroll
      for (int v = 0; v < kDim / 32; ++v) {
        const auto* from = reinterpret_cast<const float4*>(query + 8 * (t_ + 4 * v));
        own[v][0] = from[0];
        own[v][1] = from[1];
      }
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i) {
        const float4& four = own[i / 2][i % 2];
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)),
                                       fmaxf(fabsf(four.z), fabsf(four.w))));
      }
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      // So small that its inverse is not a number: as good as zero.
      const bool zero = !there || largest < 1e-30f;
      const float inverse = 127.0f / largest;
      int total = 0;
      const auto rounded = [&](float x, int shift) {
        const int code = zero ? 0 : static_cast<int>(rintf(x * inverse));
        total += code;
        return static_cast<uint32_t>(code & 0xff) << shift;
      };
      const auto four = [&](const float4& x) {
        return rounded(x.x, 0) | rounded(x.y, 8) | rounded(x.z, 16) | rounded(x.w, 24);
      };
#pragma unroll
      for (int v = 0; v < kDim / 32; ++v) {
        byte_query_[v][0] = four(own[v][0]);
        byte_query_[v][1] = four(own[v][1]);
      }
      total += __shfl_xor_sync(kAll, total, 1);
      total += __shfl_xor_sync(kAll, total, 2);
      const float factor = zero ? 0.0f : largest / 127.0f * step_.scale * kLog2E;
      byte_offset_ = __shfl_sync(kAll, total, 8 * t_) << 3;
      byte_factor_ = __shfl_sync(kAll, factor, 8 * t_);
    }
  }

  // ---- Scores, in powers of two.

  // A score of key j of the piece as it counts. Those of heads that are not there are 0, and go
  // nowhere.
  __device__ float finished(const Work& work, float score, int j) {
    if (j >= work.count) return minusInfinity();
    poison_ = fmaf(score, 0.0f, poison_);
    if (step_.bias) {
      score = fmaf(step_.bias[work.row * step_.bias_stride + work.first + j], kLog2E, score);
      // -infinity masks a key.
      if (!(score <= kLargest)) poison_ = notANumber();
    }
    return score;
  }

  // The scores of 16 keys for head t: [0] of key g, [1] of key g + 8.
  __device__ void scoreTile(const Work& work, int tile, uint32_t keys, float (&scores)[2]) {
    float even[4] = {}, odd[4] = {};  // two sums: one would wait for itself
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      loadMatrices(a, (keys + lane_key_) ^ (k << 5));
      Elements::multiply(k % 2 ? odd : even, a, query_[k][0], query_[k][1]);
    }
    scores[0] = scale_ * ((even[0] + odd[0]) + (even[1] + odd[1]));
    scores[1] = scale_ * ((even[2] + odd[2]) + (even[3] + odd[3]));
    const int key = tile * kPart;
    if (!step_.bias && key + kPart <= work.count) {
      poison_ = fmaf(scores[0], 0.0f, poison_);
      poison_ = fmaf(scores[1], 0.0f, poison_);
    } else {
      scores[0] = finished(work, scores[0], key + g_);
      scores[1] = finished(work, scores[1], key + g_ + 8);
    }
  }

  // Reports a score that was not finite: 0 times it is not a number.
  __device__ void tell(const Work& work) {
    if (__any_sync(kAll, poison_ != 0) && lane_ == 0) {
      report(step_, Wrong::kScore, work.row, work.kv_head);
    }
    poison_ = 0;
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
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      uint32_t a[4];
      loadTransposed(a, (values + lane_value_) ^ (m << 5));
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
#pragma unroll 1
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

  __device__ float* scoresOf(int head) const {
    return reinterpret_cast<float*>(scratch_ + head * kScoreRow);
  }

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

  // Returns the largest of this lane's.
  __device__ float exactScores(const Work& work) {
    takeQueries(work);
    float top = minusInfinity();
    float* to = scoresOf(t_) + g_;
    const int tiles = (work.count + kPart - 1) / kPart;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      float two[2];
      scoreTile(work, tile, await(), two);
      release();
      top = fmaxf(top, fmaxf(two[0], two[1]));
      to[tile * kPart] = two[0];
      to[tile * kPart + 8] = two[1];
    }
    for (int tile = tiles; tile < kParts; ++tile) {
      to[tile * kPart] = to[tile * kPart + 8] = minusInfinity();
    }
    return top;
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

  __device__ float shadowScores(const Work& work) {
    float top = minusInfinity();
    if constexpr (kSweep == Sweep::kShadow) {
      takeByteQueries(work);
#pragma unroll 1
      for (int slot = 0; slot < kPieceKeys / 64; ++slot) {
        const int begin = slot * 64 + g_ / 4 * 16 + g_ % 4 * 4;
        float* to = scoresOf(t_) + begin;
        if (slot * 64 >= work.count) {
          const float none = minusInfinity();
          *reinterpret_cast<float4*>(to) =
              *reinterpret_cast<float4*>(to + 32) = {none, none, none, none};
          continue;
        }
        const bool whole = !step_.bias && slot * 64 + 64 <= work.count;
        const uint32_t at = await();
        // Features 8 (t + 4 v) .. + 7 of keys 4 (g % 4) .. + 3 of tile g / 4 of 32 keys.
        const uint32_t codes = at + g_ / 4 * (kDim * 8) + codeChunk(t_ * 4 + g_ % 4) * 16;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Products of low nibbles, and 16 times those of high ones, which stay where they are.
          int low[2][4] = {}, high[2][4] = {};
#pragma unroll
          for (int v = 0; v < kDim / 32; v += 2) {
            const uint4 one = loadShared(codes + half * (16 * kDim) + v * 256);
            const uint4 two = loadShared(codes + half * (16 * kDim) + (v + 1) * 256);
            constexpr uint32_t kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
            const uint32_t a[4] = {one.x & kLow, one.y & kLow, two.x & kLow, two.y & kLow};
            multiplyBytes(low[0], a, byte_query_[v][0], byte_query_[v + 1][0]);
            const uint32_t b[4] = {one.x & kHigh, one.y & kHigh, two.x & kHigh, two.y & kHigh};
            multiplyBytes(high[0], b, byte_query_[v][1], byte_query_[v + 1][1]);
            const uint32_t c[4] = {one.z & kLow, one.w & kLow, two.z & kLow, two.w & kLow};
            multiplyBytes(low[1], c, byte_query_[v][0], byte_query_[v + 1][0]);
            const uint32_t d[4] = {one.z & kHigh, one.w & kHigh, two.z & kHigh, two.w & kHigh};
            multiplyBytes(high[1], d, byte_query_[v][1], byte_query_[v + 1][1]);
          }
          const uint4 bits = loadShared(at + Layout::kTileBytes + half * 128 + g_ * 16);
          const float scales[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y),
                                   __uint_as_float(bits.z), __uint_as_float(bits.w)};
          float s[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int dot = low[i / 2][i % 2 * 2] + (high[i / 2][i % 2 * 2] >> 4) - byte_offset_;
            s[i] = static_cast<float>(dot) * (byte_factor_ * scales[i]);
          }
          if (whole) {
#pragma unroll
            for (int i = 0; i < 4; ++i) poison_ = fmaf(s[i], 0.0f, poison_);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) s[i] = finished(work, s[i], begin + half * 32 + i);
          }
          top = fmaxf(top, fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
          *reinterpret_cast<float4*>(to + half * 32) = {s[0], s[1], s[2], s[3]};
        }
        release();
      }
    }
    return top;
  }

  __device__ static uint4 loadShared(uint32_t at) {
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(at)
                 : "memory");
    return words;
  }

  // ---- s2anta-flash: draws of this piece, and the mean of their values. The values are fetched
  // while the next piece is scored.

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
      const uint32_t stream = step_.layer << 16 | static_cast<uint32_t>(headOf(work, lane_));
      draws.offsets[lane_] = philox(step_.seed, step_.sequences[work.row], step_.steps[work.row],
                                    stream, static_cast<uint32_t>(work.piece))[0] >>
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

  const Step& step_;
  const RowPieces* rows_;  // [rows + 1], shared memory
  uint8_t* scratch_;
  uint32_t ring_;
  int lane_, g_, t_;
  int quads_, inner_, pieces_;
  int warps_, within_, begin_, end_;

  uint32_t head_slot_, tail_slot_;  // to fill next, to read next
  uint32_t lane_offset_, lane_copy_, lane_key_, lane_value_;
  bool loading_ = false, has_ahead_ = false;
  Work load_, ahead_;
  int load_pages_ = 0, ahead_pages_ = 0, load_slot_ = 0, load_slots_ = 0;
  Place next_;

  Work pending_;  // s2anta-flash: the piece whose values are on their way
  int pending_rows_ = -1;
  float pending_factor_ = 0;

  float poison_ = 0;  // not a number once a score was not finite
  int queries_of_ = -1, byte_queries_of_ = -1;
  uint32_t query_[kSteps][2];
  float scale_ = 0;
  uint32_t byte_query_[kDim / 32][2];
  int byte_offset_ = 0;
  float byte_factor_ = 0;
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
      if (kind == RowKind::kExact) pieces = (n + exactPieceKeys(n) - 1) / exactPieceKeys(n);
      if (kind == RowKind::kSampled) pieces = piecesOf(n);
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
