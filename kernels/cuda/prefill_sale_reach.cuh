#pragma once
// SALE's search for blocks of keys with a score that reaches a query's threshold, by products of
// codes (prefill_sale.cu). Device code.
//
// A tile has 128 keys, four blocks. Integer comparisons decide nearly all blocks. The CPU's float
// operations decide the others.
#include "kernels/cuda/prefill_sale_codes.cuh"

namespace allot::kernels::cuda {

__device__ inline int localBlocks(int seen) { return min(seen, 4 + ((seen - 5) % 4 + 4) % 4); }
__device__ inline int saleBlocksSeen(int end) { return (end + kSaleBlock - 1) / kSaleBlock; }

__device__ inline bool keepsAll(const SaleChunk& sale, int head, int seen) {
  return sale.all || sale.tau[head] < kKeepsAll || 1 + localBlocks(seen) >= seen;
}

// One head's block of 64 queries.
struct SaleRow {
  int head = 0, block = 0;  // block: of the chunk
  int seen = 0;             // blocks of keys that its queries see
  int middle_end = 1;       // a score decides on blocks 1 .. middle_end - 1; the others are kept

  __device__ static SaleRow of(const PromptChunk& chunk, const SaleChunk& sale, int head,
                               int block) {
    const int seen = saleBlocksSeen(blockEnd(chunk, block));
    return {head, block, seen, keepsAll(sale, head, seen) ? 1 : seen - localBlocks(seen)};
  }
  // Writes word `w` of the row's list, of which `found` are the chosen blocks: adds the first block
  // and the local ones.
  __device__ void write(const PromptChunk& chunk, const SaleChunk& sale, int w,
                        uint32_t found) const {
    const int blocks = (chunkEnd(chunk) - 1) / kQueryBlock - firstBlock(chunk) + 1;
    const auto below = [&](int block) {
      return block <= 32 * w ? 0u : block >= 32 * w + 32 ? ~0u : (1u << block % 32) - 1;
    };
    const uint32_t local = below(seen) & ~below(middle_end);
    sale.bits[(static_cast<int64_t>(head) * blocks + block) * sale.words + w] =
        (found & below(middle_end)) | local | (w == 0 ? 1u : 0u);
  }
};

// A tile's codes and what belongs to them, for `Rows` rows of a thread block.
template <int D, int Rows>
struct SaleStage {
  __align__(1024) uint8_t codes[CodeTile<D>::kBytes];
  float means[Rows][kCodeKeys];
  float inverses[kCodeKeys / 8];  // of scales
};

// The thresholds of a warp's 16 queries, and what else their scores need beside codes.
template <int D>
struct CodedQueries {
  float scale, inverse;          // rows g and g + 8 have one scale; inverse: kQueryCodes / scale
  float threshold[2], limit[2];  // limit: of a score before it is scaled
  float most_units;              // below which reaches() can round limits
  int oldest[2];

  __device__ void load(const PromptChunk& chunk, const SaleChunk& sale, int head, int row,
                       int lane) {
    const int g = lane / 4;
    const int base = firstBlock(chunk) * kQueryBlock;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + g + 8 * half;
      const int64_t from = static_cast<int64_t>(head) * sale.rows + position - base;
      const bool there = position >= chunk.first && position < chunkEnd(chunk);
      if (half == 0) scale = sale.query_scales[from];
      threshold[half] = there ? sale.thresholds[from] : -minusInfinity();
      limit[half] = threshold[half] / chunk.scale;
      oldest[half] = oldestOf(chunk, position);
    }
    inverse = kQueryCodes / scale;
    float largest = 0;  // of the rows that are there
    for (const float x : limit) largest = fmaxf(largest, x < -minusInfinity() ? fabsf(x) : 0.0f);
    most_units = static_cast<float>(1 << 20) / largest;
  }

  // Returns true if one of this thread's scores of block `in_tile` reaches its row's threshold, by
  // the CPU's operations. `key_scales`: of the tile. The block's first key is at `first`; keys
  // before a row's window do not count.
  template <int Rows>
  __device__ bool reachesExactly(float scale_of_all, const int (&dots)[kCodeKeys / 8][4],
                                 const float* key_scales, const SaleStage<D, Rows>& tile,
                                 int of_tile, int in_tile, int first, int lane) const {
    const int t = lane % 4;
    const float factor = __fmul_rn(scale, __ldg(key_scales + 4 * in_tile + t));
    float top[2] = {minusInfinity(), minusInfinity()};
#pragma unroll
    for (int n = 0; n < kSaleBlock / 8; ++n) {
      const int column = 8 * n + 2 * t;
      const float2 mean =
          *reinterpret_cast<const float2*>(tile.means[of_tile] + kSaleBlock * in_tile + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const float dot = static_cast<float>(dots[4 * in_tile + n][i]) / kQueryCodes;  // exact
        const float score = __fadd_rn(__fmul_rn(factor, dot), i % 2 ? mean.y : mean.x);
        if (first + column + i % 2 >= oldest[half]) top[half] = fmaxf(top[half], score);
      }
    }
    return __fmul_rn(scale_of_all, top[0]) >= threshold[0] ||
           __fmul_rn(scale_of_all, top[1]) >= threshold[1];
  }

  // Does the same in 1 / kQueryCodes of both scales first: in whole numbers a score is one addition
  // and one maximum. They decide unless a score is within 2 of its threshold.
  template <int Rows>
  __device__ bool reaches(float scale_of_all, const int (&dots)[kCodeKeys / 8][4],
                          const float* key_scales, const SaleStage<D, Rows>& tile, int of_tile,
                          int in_tile, int first, int lane) const {
    // The last bits of 1.5 * 2^23 plus a number below 2^22 are the number, rounded.
    constexpr float kBase = 12582912.0f;
    const int t = lane % 4;
    const float units = inverse * tile.inverses[4 * in_tile + t];
    // From 0 on: bits of negative sums, which are far below any threshold, would overflow.
    int most[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < kSaleBlock / 8; ++n) {
      const float2 mean = *reinterpret_cast<const float2*>(tile.means[of_tile] +
                                                           kSaleBlock * in_tile + 8 * n + 2 * t);
      const int means[2] = {__float_as_int(fmaf(mean.x, units, kBase)),
                            __float_as_int(fmaf(mean.y, units, kBase))};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        most[i / 2] = __viaddmax_s32(dots[4 * in_tile + n][i], means[i % 2], most[i / 2]);
      }
    }
    const int above = max(most[0] - __float_as_int(fmaf(limit[0], units, kBase)),
                          most[1] - __float_as_int(fmaf(limit[1], units, kBase)));
    // Scales of 0 have units that are not finite.
    if (units < most_units && first >= oldest[1] && (above < -1 || above > 1)) return above > 0;
    return reachesExactly(scale_of_all, dots, key_scales, tile, of_tile, in_tile, first, lane);
  }

  // Returns the warp's blocks of the tile, as bits 0 to 3, with a score that reaches a threshold.
  // Bits of blocks behind the row's last have no meaning.
  template <int Rows>
  __device__ uint32_t reached(float scale_of_all, const int (&dots)[kCodeKeys / 8][4],
                              const float* key_scales, const SaleStage<D, Rows>& tile, int of_tile,
                              int first, int lane) const {
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < kCodeBlocks; ++i) {
      if (reaches(scale_of_all, dots, key_scales, tile, of_tile, i, first + i * kSaleBlock, lane)) {
        found |= 1u << i;
      }
    }
    return __reduce_or_sync(kAll, found);
  }
};

// Starts the copy of a tile for one row.
template <int D, int Threads>
__device__ void copyCodes(const SaleChunk& sale, int head, int kv_head, int tile,
                          SaleStage<D, 1>* stage, int thread) {
  const int64_t key0 = static_cast<int64_t>(tile) * kCodeKeys;
  const int64_t of_kv_head = static_cast<int64_t>(kv_head) * sale.room + key0;
  const int64_t of_head = static_cast<int64_t>(head) * sale.room + key0;
  const auto copy = [&](void* to, const void* from, int bytes, int first) {
    const int at = (thread - first) * 16;
    if (at < 0 || at >= bytes) return;
    copyAsync(sharedAddress(to) + static_cast<uint32_t>(at), static_cast<const uint8_t*>(from) + at,
              true);
  };
#pragma unroll
  for (int i = 0; i < CodeTile<D>::kBytes; i += Threads * 16) {
    copy(stage->codes + i, sale.key_codes + of_kv_head * D + i, CodeTile<D>::kBytes - i, 0);
  }
  copy(stage->means[0], sale.mean_scores + of_head, kCodeKeys * 4, 0);
  copy(stage->inverses, sale.key_inverses + of_kv_head / 8, kCodeKeys / 2, 64);
}

// Writes the lists of one head's `Blocks` blocks of 64 queries, which share the tiles of codes.
template <int D, int Blocks>
__global__ void __launch_bounds__(Blocks * 128, 2)
    findReached(const PromptChunk chunk, const SaleChunk sale) {
  using Stage = SaleStage<D, 1>;
  extern __shared__ __align__(1024) uint8_t shared[];
  constexpr int kThreads = Blocks * 128;
  Stage* const stages = reinterpret_cast<Stage*>(shared);
  uint32_t* const words = reinterpret_cast<uint32_t*>(shared + 2 * sizeof(Stage));
  const int head = static_cast<int>(blockIdx.x);
  const int kv_head = head / (chunk.heads / chunk.kv_heads);
  const int all_blocks = (chunkEnd(chunk) - 1) / kQueryBlock - firstBlock(chunk) + 1;
  const int b0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Blocks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int b = b0 + thread / 128;
  const bool there = b < all_blocks;
  SaleRow row;
  if (there) row = SaleRow::of(chunk, sale, head, b);
  uint32_t* const own = words + thread / 128 * sale.words;
  for (int i = thread; i < Blocks * sale.words; i += kThreads) words[i] = 0;

  CodedQueries<D> queries;
  uint32_t codes_of[D / 32][4];  // of the warp's queries
  const int first = thread % 128 / 32 * 16;
  const int8_t* const own_codes =
      sale.query_codes + (static_cast<int64_t>(head) * sale.rows + b * kQueryBlock + first) * D;
  if (row.middle_end > 1) {
    queries.load(chunk, sale, head, (firstBlock(chunk) + b) * kQueryBlock + first, lane);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = lane / 4 + i % 2 * 8;
        codes_of[k][i] = *reinterpret_cast<const uint32_t*>(own_codes + query * D + 32 * k +
                                                            i / 2 * 16 + lane % 4 * 4);
      }
    }
  }
  const float* const key_scales = sale.key_scales + kv_head * (sale.room / 8);
  // The last of the blocks sees most.
  const int last = min(b0 + Blocks, all_blocks) - 1;
  const int blocks_end = SaleRow::of(chunk, sale, head, last).middle_end;
  const int begin = oldestOf(chunk, blockBegin(chunk, b0)) / kCodeKeys;
  const int end = blocks_end > 1 ? (blocks_end + kCodeBlocks - 1) / kCodeBlocks : 0;
  if (begin < end) copyCodes<D, kThreads>(sale, head, kv_head, begin, stages, thread);
  commitCopies();
  for (int tile = begin, s = 0; tile < end; ++tile, s ^= 1) {
    meetAtTile();
    if (tile + 1 < end) {
      copyCodes<D, kThreads>(sale, head, kv_head, tile + 1, stages + (s ^ 1), thread);
    }
    commitCopies();
    if (kCodeBlocks * tile >= row.middle_end || row.middle_end <= 1) continue;
    int dots[kCodeKeys / 8][4];
    const uint32_t codes = sharedAddress(stages[s].codes);
#pragma unroll
    for (int n = 0; n < kCodeKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dots[n][i] = 0;
#pragma unroll
      for (int k = 0; k < D / 64; ++k) {
        uint32_t keys[4];
        loadMatrices(keys, codes + CodeTile<D>::place(8 * n + lane % 8, 4 * k + lane / 8));
        multiplyCodes(dots[n], codes_of[2 * k], keys[0], keys[1]);
        multiplyCodes(dots[n], codes_of[2 * k + 1], keys[2], keys[3]);
      }
    }
    const uint32_t found = queries.reached(chunk.scale, dots, key_scales + tile * (kCodeKeys / 8),
                                           stages[s], 0, tile * kCodeKeys, lane);
    if (found && lane == 0) atomicOr(own + tile / 8, found << tile % 8 * 4);
  }
  __syncthreads();
  if (!there) return;
  for (int w = thread % 128; w < sale.words; w += 128) row.write(chunk, sale, w, own[w]);
}

// The same on Hopper: a thread block has four rows of a KV head, a warp group each, and a thread
// that copies.
template <int D>
struct SaleShared {
  static constexpr int kRows = 4, kStages = 4;
  __align__(1024) uint8_t queries[kRows][kQueryBlock * D];  // codes, as a CodeTile's
  SaleStage<D, kRows> stages[kStages];
  SharedBarrier full[kStages], empty[kStages];
};
constexpr int kReachThreads = 640;

template <int D>
__global__ void __launch_bounds__(kReachThreads, 1)
    findReachedOnHopper(const PromptChunk chunk, const SaleChunk sale) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static_assert(D == 128, "lines of codes have the 128 bytes of wgmma's swizzle");
  using Shared = SaleShared<D>;
  constexpr int kRows = Shared::kRows, kStages = Shared::kStages;
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint32_t* const words = reinterpret_cast<uint32_t*>(memory + sizeof(Shared));
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128 - 1;
  const int kv_head = static_cast<int>(blockIdx.x) % chunk.kv_heads;
  const int part = static_cast<int>(blockIdx.x) / chunk.kv_heads;
  const int heads = chunk.heads / chunk.kv_heads;
  const int blocks = (chunkEnd(chunk) - 1) / kQueryBlock - firstBlock(chunk) + 1;
  // Rows are in order of falling length.
  const auto rowOf = [&](int i) {
    const int row = part * kRows + i;
    return row < heads * blocks
               ? SaleRow::of(chunk, sale, kv_head * heads + row % heads, blocks - 1 - row / heads)
               : SaleRow{};
  };
  int end = 0, first_block = INT_MAX;
  for (int i = 0; i < kRows; ++i) {
    const SaleRow row = rowOf(i);
    if (row.middle_end <= 1) continue;
    end = max(end, (row.middle_end + kCodeBlocks - 1) / kCodeBlocks);
    first_block = min(first_block, row.block);
  }
  const int begin = end > 0 ? oldestOf(chunk, blockBegin(chunk, first_block)) / kCodeKeys : 0;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].start(1);
      shared.empty[i].start(4 * kRows);
    }
    fenceBarriers();
  }
  for (int i = thread; i < kRows * sale.words; i += kReachThreads) words[i] = 0;
  __syncthreads();
  if (group < 0) {
    releaseRegisters<24>();
    if (thread > 0) return;
    for (int tile = begin, i = 0; tile < end; ++tile, ++i) {
      SaleStage<D, kRows>& stage = shared.stages[i % kStages];
      SharedBarrier* const full = &shared.full[i % kStages];
      shared.empty[i % kStages].wait((i / kStages & 1) ^ 1);
      full->arriveWithBytes(sizeof stage.codes + sizeof stage.inverses + sizeof stage.means);
      const int64_t key0 = static_cast<int64_t>(tile) * kCodeKeys;
      const int64_t of_kv_head = kv_head * sale.room + key0;
      copyBulk(&stage.codes, sale.key_codes + of_kv_head * D, sizeof stage.codes, full);
      copyBulk(&stage.inverses, sale.key_inverses + of_kv_head / 8, sizeof stage.inverses, full);
      for (int r = 0; r < kRows; ++r) {
        const int head = kv_head * heads + (part * kRows + r) % heads;
        copyBulk(&stage.means[r], sale.mean_scores + head * sale.room + key0, sizeof stage.means[0],
                 full);
      }
    }
    return;
  }
  acquireRegisters<112>();
  const SaleRow row = rowOf(group);
  const int lane = thread % 32, own = thread % 128;
  const bool there = part * kRows + group < heads * blocks;
  CodedQueries<D> queries;
  const int8_t* const codes_of_row =
      sale.query_codes + (static_cast<int64_t>(row.head) * sale.rows + row.block * kQueryBlock) * D;
  if (row.middle_end > 1) {
    queries.load(chunk, sale, row.head,
                 (firstBlock(chunk) + row.block) * kQueryBlock + own / 32 * 16, lane);
#pragma unroll
    for (int i = own; i < kQueryBlock * D / 16; i += 128) {
      *reinterpret_cast<uint4*>(shared.queries[group] +
                                CodeTile<D>::place(i / (D / 16), i % (D / 16))) =
          *reinterpret_cast<const uint4*>(codes_of_row + i * 16);
    }
  }
  fenceProducts();
  syncAt(1 + group, 128);
  const float* const key_scales = sale.key_scales + kv_head * (sale.room / 8);
  const uint32_t query_low = lowWord(sharedAddress(shared.queries[group]));
  const int own_end = row.middle_end > 1 ? row.middle_end : 0;
  for (int tile = begin, i = 0; tile < end; ++tile, ++i) {
    const SaleStage<D, kRows>& stage = shared.stages[i % kStages];
    shared.full[i % kStages].wait(i / kStages & 1);
    if (kCodeBlocks * tile < own_end) {
      int dots[kCodeKeys / 8][4];
      const uint32_t key_low = lowWord(sharedAddress(stage.codes));
      hold(dots);
      wgmmaFence();
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        codeTile(dots, tileOf(query_low + k * 2), tileOf(key_low + k * 2), k == 0);
      }
      wgmmaCommit();
      wgmmaWait<0>();
      hold(dots);
      const uint32_t found = queries.reached(chunk.scale, dots, key_scales + tile * (kCodeKeys / 8),
                                             stage, group, tile * kCodeKeys, lane);
      if (found && lane == 0) {
        atomicOr(words + group * sale.words + tile / 8, found << tile % 8 * 4);
      }
    }
    __syncwarp();
    if (lane == 0) shared.empty[i % kStages].arrive();
  }
  syncAt(1 + group, 128);
  if (!there) return;
  for (int w = own; w < sale.words; w += 128) {
    row.write(chunk, sale, w, words[group * sale.words + w]);
  }
#else
  __trap();  // launched where Device::is_hopper was wrong
#endif
}

}  // namespace allot::kernels::cuda
