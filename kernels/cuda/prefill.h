#pragma once
// The data that the kernels of a prefill share, plain and passed by value. Private to kernels/cuda.
//
// A block of queries is 64 positions of one query head: four warps of 16 queries. Its keys come in
// tiles of 64: four groups of 16 neighbours, so that small blocks share a tile.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "allot/kernels/cuda_prefill.h"
#include "kernels/cuda/buffer.h"

namespace allot::kernels::cuda {

constexpr int kQueryBlock = 64;
constexpr int kWideQueries = 192;  // queries of a thread block of attendBlocks() without a list
constexpr int kTileGroups = 4;     // groups of 16 keys, each in one page
constexpr int kSaleBlock = 32;     // keys of a block of SALE
constexpr int kCodeKeys = 128;     // keys of a tile of SALE's codes

// One chunk: the cache, and PrefillInputs, KeyBits and PrefillOutputs.
struct PromptChunk {
  // The cache.
  const void* keys = nullptr;
  const void* values = nullptr;
  int64_t pages = 0;
  int kv_heads = 0;
  int page_shift = 0;

  // PrefillInputs.
  const float* queries = nullptr;  // null: bfloat16 ones in rounded_queries
  const void* rounded_queries = nullptr;
  const int32_t* page_table = nullptr;
  int first = 0;
  int count = 0;
  int heads = 0;
  float scale = 0;
  int window = 0;
  float log2_skip = 0;  // log2 of PrefillInputs::skip, for kernels that skip

  // KeyBits; none: dense.
  const uint32_t* bits = nullptr;
  int words = 0;
  int key_block = kQueryBlock;
  int list_first = 0;  // block of queries
  int list_blocks = 0;

  // PrefillOutputs.
  float* out = nullptr;  // null: bfloat16 outputs in `rounded`
  void* rounded = nullptr;
  float* lse = nullptr;
  PrefillStatistics* statistics = nullptr;

  unsigned long long* wrong = nullptr;
};

constexpr int kHopperQueries = 128;  // positions of a work item on Hopper

// A chunk for Hopper's kernel.
struct HopperChunk {
  CUtensorMap keys, values;  // of the pools, a page or less a box
  CUtensorMap queries;       // channels, heads, positions of the chunk
  PromptChunk chunk;
  int first_block = 0;  // of 128 positions
  int blocks = 0;
  int box_shift = 4;            // log2 of the keys that a tensor map's box has
  int section = 1;              // heads whose items come together
  bool takes_turns = false;     // the warp groups start products in turn
  unsigned* tickets = nullptr;  // [2] taken items, ended blocks: zeros between launches
};

// Errors that the device finds: kind << 56 | head << 32 | query block. The smallest is reported.
enum class PromptWrong : uint8_t { kPage, kScore };
constexpr unsigned long long kNothingWrongThere = ~0ull;

// Scratch and lists of SampleAttention.
struct SampledRows {
  double alpha_column = 1;
  double alpha_slash = 1;
  int splits = 0;               // of the keys
  float* tops = nullptr;        // [heads, splits, 64] running maxima, in powers of two
  float* sums = nullptr;        // [heads, splits, 64]
  uint64_t* columns = nullptr;  // [heads, bins]: sums of attention, 2^30 a query
  uint64_t* slashes = nullptr;  // [heads, bins]
  uint64_t* least = nullptr;    // [2, heads]: the least rank of chosen columns, of slashes
  int bins = 0;                 // key blocks up to the chunk's end
  uint32_t* bits = nullptr;     // [heads, query blocks, words]
  int words = 0;
};

// Scratch and lists of SALE.
struct SaleChunk {
  const float* tau = nullptr;     // [heads]
  bool all = false;               // keep everything: the chunk ends within dense_keys
  int splits = 0;                 // of sums over keys or queries
  double* partial = nullptr;      // [heads, splits, head_dim]
  float* key_means = nullptr;     // [kv_heads, head_dim]
  float* query_means = nullptr;   // [heads, head_dim]
  int8_t* key_codes = nullptr;    // [kv_heads, room / 128, 128, head_dim], CodeTile::place()
  float* key_scales = nullptr;    // [kv_heads, room / 8]
  float* key_inverses = nullptr;  // of key_scales
  float* mean_scores = nullptr;   // [heads, room]
  // Keys up to the chunk's end, rounded up to 128. Nothing is written behind the last block of 32
  // or before the window's first, and what is read there does not count.
  int64_t room = 0;
  int8_t* query_codes = nullptr;  // [heads, rows, head_dim], times kQueryCodes
  float* query_scales = nullptr;  // [heads, rows]
  float* thresholds = nullptr;    // [heads, rows]
  int rows = 0;                   // queries of the chunk's blocks, in whole blocks of 64
  uint32_t* bits = nullptr;       // [heads, query blocks, words]
  int words = 0;
};

// Scratch of attention over sampled blocks, separate for each thread block.
struct SampledBlocks {
  QueryDraws draws;
  int room = 0;                 // key blocks
  float* lse = nullptr;         // [thread blocks, room, 64], in powers of two
  uint64_t* weights = nullptr;  // [thread blocks, room]
  float* factors = nullptr;     // [thread blocks, room]: log2 of a drawn block's factor
};

using AttendKernel = void (*)(PromptChunk);
using SampledKernel = void (*)(PromptChunk, SampledBlocks);
// Return the kernels of attention and their shared memory in bytes; null for head sizes other than
// 64 and 128. `wide`: without a list; `skips`: skip-softmax, which is wide.
AttendKernel attendKernelOf(int head_dim, bool skips, bool wide);
int attendBytes(int head_dim);
SampledKernel sampledKernelOf(int head_dim);
// Returns the bytes of shared memory of sampledKernelOf()'s kernel for `room` key blocks.
int sampledBytes(int head_dim, int room);
// Launch the kernels of a selection.
void launchSampleAttention(const PromptChunk& chunk, const SampledRows& rows, int head_dim,
                           cudaStream_t stream);
void launchSale(const PromptChunk& chunk, const SaleChunk& sale, int head_dim, bool on_hopper,
                cudaStream_t stream);
// Rounds a chunk's queries to bfloat16.
cudaError_t roundQueries(const PromptChunk& chunk, int head_dim, void* rounded,
                         cudaStream_t stream);
// Launches attention on Hopper. `queries`: roundQueries(). `tickets`: HopperChunk::tickets.
Refusal launchHopper(const PromptChunk& chunk, const void* queries, int head_dim, bool skips,
                     int multiprocessors, unsigned* tickets, cudaStream_t stream);

}  // namespace allot::kernels::cuda
