#pragma once
// The data of one decode step that its kernels share, passed by value. Private to kernels/cuda.
//
// A step is split-KV decode (flash decoding): a split kernel over keys, then a combine kernel over
// heads. The split kernel cuts a row's keys into splits, of kSplitKeys for sampled heads and of
// exactSplitKeys() for exact ones. A warp processes one split of one KV head for one head group, or
// up to kJoinedSplits exact splits. It writes for each head:
//   exact heads    the sum of exponentials and the weighted sum of values
//   sampled heads  the weights and their sums, or the scores (choosesByScores()); the combine
//                  kernel draws or chooses from these
//   flash heads    (SplitMode::kFlash) the sum of the weights, and the mean of the drawn values
// The combine kernel has one block for each row and query head and adds up the splits in one order.
// With draws=group there are two kernels in its place: one draws for a KV head, in parts, and
// gathers the rows of a part for all heads (group_mixture.cuh, group_combine.cuh); the other adds
// up the parts of a head. With choose=group there are four or six (group_choice.cuh).
//
// Kernels with kByHead = false serve rows with one budget, whose heads are all of one kind. Kernels
// with kByHead = true serve these rows, too, and rows with a budget for each head (Step::ByHead),
// which may have exact and sampled heads. The keys of such a row are read once for each kind, by
// head groups with a head of that kind, and results are written for the heads of that kind.
//
// Before the split kernel a step of `bernoulli` makes the queries of later kernels (features.cuh),
// and a step of `quest` scores pages (quest.cuh). quest's split kernel processes exact heads alone.
//
// Words:
// - split: neighbouring keys of a row that one warp processes for one head group of a KV head.
//   Splits of kSplitKeys are the tiles of s2anta-flash with its default tileSize.
// - subtile: 16 keys of a split, the m16 of one tensor core product.
// - head group: up to 4, 8 or 16 query heads of one KV head (GQA) that one warp processes together,
//   so that it reads their keys once. score_tile.cuh lays their queries out for the products.
// - row: one sequence of the batch, as in DecodeInputs; Inputs::sequences names its random stream.
// - entry: a key with its value, or its index in the pool, counted in vectors of head_dim.
// - shadow, codes: keys quantised to 4 bits, with a scale each.
// - s': a score in powers of two, s log2(e).
// - weight: 2^(s' - Split::max_score) / 2, not normalised, in float16: a multiple of 2^-24, so that
//   sums of weights are exact in integers.
// - slot: a stage of shared memory. pipe: the ring of cp.async copies that fills slots.
// - g, t: PTX's groupID and threadID_in_group of mma fragments: lane 4 g + t.
//
// Where to read on: split.cuh (SplitWarp::run), then combine.cuh (CombineHead::run),
// group_mixture.cuh, choice.cuh, tiles.cuh and quest.cuh.
#include <cstdint>

#include "allot/kernels/cuda_decode.h"
#include "kernels/adaptive_rule.h"

// The least __CUDA_ARCH__ whose code waits for the kernel before it (primitives.cuh). A launch
// compares it with the architecture that the loaded kernel was compiled for
// (Workspace::Impl::waits). tests/gpu/check_ptx.py checks the waits in PTX.
#define ALLOT_OVERLAP_ARCH 900

namespace allot::kernels::cuda {

// Sizes of head groups. SplitMode::kExact and kJoined have the smallest that holds the query heads
// of a KV head, kShadow 4 or 8, other modes 4 (headGroupSize() in method_step.cu says why).
constexpr int kSmallHeadGroup = 4;
constexpr int kMaxHeadGroup = 16;
constexpr int kMaxShadowHeadGroup = 8;
constexpr int headGroupFor(int group) {
  return group <= kSmallHeadGroup ? kSmallHeadGroup : group <= 8 ? 8 : kMaxHeadGroup;
}

constexpr int kSubtileKeys = 16;  // weights are also summed by subtiles
constexpr int kSubtiles = kSplitKeys / kSubtileKeys;
// Bytes of one split and head: 256 weights of 2 bytes, or head_dim floats, or 32 levels.
constexpr int kSplitBytes = 512;

// Returns the keys of a split in an exact row of n keys, at most 32 subtiles. Short rows have small
// splits, for work on every multiprocessor. Long rows have large ones, so that less is written
// between kernels.
constexpr int kSplitLength = 4096;
constexpr int exactSplitKeys(int n) { return n <= kSplitLength ? 128 : n <= 16384 ? 256 : 512; }
// Returns the most splits of an exact or sampled row, at least 1.
constexpr int mostSplits(int max_length) {
  const int whole = (max_length + kSplitKeys - 1) / kSplitKeys;
  const int short_splits = ((max_length < kSplitLength ? max_length : kSplitLength) + 127) / 128;
  return whole > short_splits ? whole : short_splits > 0 ? short_splits : 1;
}
constexpr int kMostSplits = 1 << 15;  // of a row: the combine kernel's totals are at most 2^62

// Exact splits are reduced in two levels: groups of four in order, then the groups' results by
// eight partial sums (head_splits.cuh). A warp that takes a whole group reduces it itself, which
// writes less between the kernels. If splits are few, each warp takes one, and the combine kernel
// reduces the group by the same operations (joined()), with the same bits.
constexpr int kJoinedSplits = 4;

// If keys are chosen by their scores, a split's bytes are levels, one for eight keys: how far their
// largest score is below the split's max_score, in eighths of a power of two. The last level stands
// for all larger distances.
constexpr int kLevelsPerSplit = kSplitKeys / 8;
constexpr int kLevels = 256;
constexpr float kLevelsInTwo = 8;

// Returns 32-bit words with room for n bits, one a key.
constexpr int bitWords(int n) { return n / 32 + 1; }

// What the split kernel does for sampled heads.
enum class SplitMode {
  kExact,    // nothing: no head is sampled
  kJoined,   // as kExact; a warp may take kJoinedSplits splits together
  kWeights,  // weights, or scores, of the keys themselves
  kShadow,   // weights, or scores, of the keys' 4-bit shadow
  kFlash,    // draws and gathers by itself
};

// Returns true if keys are chosen by scores: the split kernel then stores scores, not weights.
constexpr bool choosesByScores(ChosenBy by) {
  return by == ChosenBy::kLargest || by == ChosenBy::kAdaptive || by == ChosenBy::kThreshold;
}

// The counts of a head's chosen keys. Its list of draws has the fixed keys, then the sampled ones.
struct Chosen {
  uint32_t fixed;  // keys kept by their score or position
  uint32_t sampled;
  uint32_t tail;    // keys to sample from
  uint32_t pilots;  // keys of the pilot, which are in pilot_bits
};

// A tile's share of the draws of a head that rounds by largest remainders (tiles.cuh).
struct TileShare {
  uint64_t remainder;  // (weight * budget) mod the weight of all tiles
  uint32_t draws;
  uint32_t before;  // draws of the tiles before it
};

// A group's draws are cut into parts by their number alone: parts of kPartDraws, or at most
// kMostParts larger ones. A block makes the draws of a part, four lanes a draw, and gathers their
// rows, a warp 16 rows.
constexpr int kPartDraws = 128;
constexpr int kPartThreads = 256, kPartWarps = kPartThreads / 32;
constexpr int kMostParts = 64;
constexpr uint32_t drawsOfPart(uint64_t draws) {
  const uint64_t rounds = (draws + kPartDraws - 1) / kPartDraws;
  return static_cast<uint32_t>((rounds + kMostParts - 1) / kMostParts * kPartDraws);
}
constexpr int partsOf(uint64_t draws) {
  const uint32_t each = drawsOfPart(draws);
  return draws == 0 ? 0 : static_cast<int>((draws + each - 1) / each);
}

// Splits whose ranks a block computes, a warp a split (group_choice.cuh).
constexpr int kRankSplits = 8;
constexpr int kRankThreads = 32 * kRankSplits;

// A query head's part of the mixture; not set if the head does not draw.
struct SharedHead {
  float max_score;     // the largest of its splits
  float exponentials;  // their sum, relative to max_score; NaN if a score is
  uint32_t draws;      // R, of the group
  uint32_t parts;      // of the group's draws
};
// One part of a group's draws, or of its list of keys, for one query head. Weights are in powers of
// two, relative to `top`.
struct alignas(8) GroupPart {
  float top;
  float sum;  // of weights
};

// The list of keys that a group has chosen: the fixed ones, then the pilot or the sample.
struct alignas(16) GroupChosen {
  uint32_t fixed;
  uint32_t listed;  // keys behind the fixed ones
  uint32_t tail;    // keys to sample from
  uint32_t pilots;  // 0: the sample needs no pilot
};
// Of a part of the pilot for one query head, relative to the square of GroupPart::top.
struct alignas(8) PilotPart {
  float squares;  // of weights
  float norms;    // of weights times the lengths of values
};

// The result of one split for one query head.
struct alignas(16) Split {
  // What exponents are relative to. Sampled heads: the largest s', rounded up to a whole number.
  // Exact heads: the running maximum, which may be up to 8 below the largest s'.
  float max_score;
  // Sampled heads: the sum of weights in units of 2^-24, at most 2^31; 0 if scores are stored.
  // Exact heads: how many splits were joined into this one.
  uint32_t weight;
  float sum;  // of 2^(s' - max_score)
  float pad;
};
// A weight is float16(2^(s' - max_score) / 2), max_score = ceil(largest s' of the split): at most
// a half, a multiple of 2^-24.
constexpr float kWeightUnits = 0x1p24f;
constexpr float kNoKeys = -3.4028235e38f;  // max_score of a split whose keys are all masked

// Errors that the device finds: kind << 56 | row << 24 | KV head. The smallest is reported.
enum class Wrong : uint32_t { kLength, kPage, kBudget, kScore, kKey, kValue };
constexpr unsigned long long kNothingWrong = ~0ull;

// What is done for a head of a row. kPages: reads pages by bounds, without the split kernel.
enum class HeadKind { kBad, kSilent, kExact, kSampled, kPages };

struct Step {
  struct Cache {
    const void* keys;
    const void* values;
    const uint8_t* codes;  // of 4 bits, or null
    const float* code_scales;
    const void* bounds;  // PagedKv::bounds, or null
    int64_t pages;
    int kv_heads;
    int page_shift;  // page_size = 1 << page_shift
  } cache;

  // As in DecodeInputs.
  struct Inputs {
    const float* queries;  // bernoulli: Space::queries, after its first kernel
    const int32_t* page_table;
    const int32_t* lengths;
    const uint32_t* budgets;  // [rows], or [rows, heads]
    const uint32_t* sequences;
    const uint32_t* steps;
    const float* bias;
    int64_t bias_stride;
    int window;  // a row attends to this many newest keys; 0: to all
    int rows;
    int heads;
    int group;  // query heads of a KV head
    int max_pages;
    uint32_t layer;
    uint64_t seed;
    float scale;
  } in;

  struct Outputs {
    float* out;
    void* rounded;  // `out` in the cache's element, or null
    float* lse;
    RowStatistics* statistics;
    HeadStatistics* head_statistics;
    GroupStatistics* group_statistics;
  } out;

  // As in MethodOptions and the methods' table.
  struct How {
    bool uses_budget;     // false: a head with a budget is exact, unless kAdaptive or kThreshold
    bool exact_from_all;  // a budget of all keys or more is exact attention
    ChosenBy chosen_by;
    SplitMode mode;
    bool shares_draws;   // draws or chooses once for all heads of a KV head
    bool exact_weights;  // if it does: weights are not divided by their sum
    // ChosenBy::kAdaptive.
    uint32_t sink;
    uint32_t local;
    double sink_share;
    double local_share;
    int max_sample;  // the most sampled keys of the tail
    double heavy;
    double pilot;
    bool denominator_alone;  // adaptive-denominator
    VAttentionRule rule;
    DenominatorRule denominator_rule;
    float log_threshold;  // ChosenBy::kThreshold: log2 of the threshold
    // ChosenBy::kPages.
    int page_keys;
    bool newest_within;
    // Methods of tiles.cuh.
    int tile_keys;  // 0: by the row's length
    bool largest_remainder;
    // bernoulli.
    bool estimates;
    bool group_features;
    bool iid_features;
    uint32_t feature_samples;
  } how;

  // The workspace.
  struct Space {
    int max_length;
    uint32_t max_budget;
    int max_splits;
    Split* splits;              // [rows, heads, max_splits]
    uint8_t* split_bytes;       // [rows, heads, max_splits, kSplitBytes]
    uint32_t* subtile_weights;  // [rows, heads, max_splits, kSubtiles]
    float* scores;       // [rows, heads, max_splits, kSplitKeys], s'; null unless choosesByScores()
    int32_t* draw_keys;  // [rows * heads, draw_stride], or null
    float* draw_weights;
    uint32_t draw_stride;  // a multiple of 8
    Chosen* chosen;        // [rows * heads], or null
    uint32_t* pilot_bits;  // [rows * heads, bitWords(max_length)], or null
    int statistics_words;  // of a set of keys in shared memory of the statistics kernel
    uint32_t* sets;        // [rows * heads, 3, bitWords(max_length)], if a block has no room
    float* page_scores;    // [rows * heads, page_stride] of quest; later the numbers of kept pages
    int page_stride;       // a multiple of 8
    TileShare* tiles;      // [rows * heads, tile_stride], of largest remainders
    int tile_stride;
    // If the heads of a KV head share draws or choices:
    SharedHead* shared_heads;  // [rows * heads]
    GroupPart* parts;          // [rows * heads, part_stride]
    float* part_values;        // [rows * heads, part_stride, head_dim], relative to GroupPart::top
    int part_stride;
    float* queries;            // [rows, heads, head_dim], bernoulli's
    uint32_t* features;        // [rows, heads] features that a head reads
    uint32_t* group_features;  // [rows, kv_heads] features that its heads read together
    unsigned long long* wrong;
  } space;

  // Read by kernels with kByHead alone; behind the others, so that it does not move them.
  struct ByHead {
    bool has_head_budgets;            // Inputs::budgets are [rows, heads]
    const float* zero_budget_values;  // DecodeInputs::zero_budget_values, or null
  } by_head;

  // Read by kernels of heads that choose together alone (group_choice.cuh).
  struct Together {
    float* ranks;            // [rows, kv_heads, max_splits, kSplitKeys]
    Split* rank_splits;      // [rows, kv_heads, max_splits], max_score alone
    uint8_t* rank_levels;    // [rows, kv_heads, max_splits, kLevelsPerSplit]
    GroupChosen* chosen;     // [rows, kv_heads]
    PilotPart* pilot_parts;  // [rows * heads, Space::part_stride]
    int fixed_parts;         // parts of fixed keys; those of other keys follow
    bool long_sets;          // no set of keys is in shared memory
    bool again;              // the second pass, of samples that follow a pilot
  } together = {};
};

}  // namespace allot::kernels::cuda
