#pragma once
// What the kernels of one decode step are given, and what they leave for each other. Private to
// kernels/cuda; plain data, passed by value.
//
// A step is split-KV decode (flash decoding): a split kernel over keys, then a combine kernel over
// heads. The split kernel cuts every sequence's keys into splits of kSplitKeys. One warp takes one
// split of one KV head, for one head group. It writes for each split and head:
//   exact heads    the softmax's sum and the weighted sum of values
//   sampled heads  the weights and their sums; the combine kernel draws from these
//   flash heads    the sum of the weights, and the mean of the values that it drew itself
// The combine kernel has one block a sequence and query head and adds up the splits in order.
//
// Kernels of kByHead = false are for sequences that have one budget for all heads, which then are
// of one kind: they ask nothing of a head. Those of kByHead = true are for heads that have budgets
// of their own, or give something without one (Step::ByHead); the launch chooses. There a sequence
// may have exact and sampled heads: its keys are read once for each, a split is read if a head of
// the head group is of its kind, and results are written for such heads alone.
//
// Before the split kernel a step of `bernoulli` makes the queries that all else reads
// (features.cuh), and a step of `quest` scores pages of keys (quest.cuh), whose heads are read only
// where exact.
//
// Words:
// - split: the keys that one warp processes for a KV head; a tile of s2anta-prop and -flash.
// - subtile: 16 keys of a split, the m16 of one tensor core product.
// - head group: up to 4, 8 or 16 query heads of one KV head (GQA) that one warp processes together,
//   so that it reads their keys once. A head group of 4 has two columns of n8 for each head; larger
//   ones have a column a head and two products (score_tile.cuh).
// - row: one sequence of the batch, as in DecodeInputs; Inputs::sequences names its random stream.
// - entry: a key with its value; its position in the pool, in vectors of head_dim.
// - shadow, codes: keys quantised to 4 bits, with a scale each.
// - weight: 2^(s' - max_score) / 2, s' the score in powers of two: not normalised, and a float16
//   that is a multiple of 2^-24, so that sums of weights are integers.
// - slot, pipe: a stage of shared memory, and the ring of cp.async copies that fills it.
// - g, t: PTX's groupID and threadID_in_group of mma fragments: lane 4 g + t.
//
// Where to read on: split.cuh (SplitWarp::run), then combine.cuh (CombineHead::run), choice.cuh,
// tiles.cuh and quest.cuh.
#include <cstdint>

#include "allot/kernels/cuda_decode.h"
#include "kernels/adaptive_rule.h"

// The first architecture whose code waits for the kernel before it (primitives.cuh), as
// __CUDA_ARCH__ counts: the kernels' own gate and, by what a loaded kernel was compiled for, the
// launch's. tests/gpu/check_ptx.py holds the waits against it.
#define ALLOT_OVERLAP_ARCH 900

namespace allot::kernels::cuda {

// Query heads that a warp handles at once: of dense the smallest head group that holds a group,
// over the 4-bit shadow up to 8, of other split kernels for draws 4 (method_step.cu says why).
constexpr int kSmallHeadGroup = 4;
constexpr int kMaxHeadGroup = 16;
constexpr int kMaxShadowHeadGroup = 8;
constexpr int headGroupFor(int group) {
  return group <= kSmallHeadGroup ? kSmallHeadGroup : group <= 8 ? 8 : kMaxHeadGroup;
}

constexpr int kSubtileKeys =
    16;  // keys of one part: of one subtile; weights are summed by subtiles, too
constexpr int kSubtiles = kSplitKeys / kSubtileKeys;
constexpr int kSplitBytes =
    512;  // of one split and head: 256 weights of 2 bytes, or head_dim floats, or 32 levels

// Keys of a split of an exact sequence, by its length alone: short ones in more splits, so that
// there is work for every multiprocessor, long ones in fewer, so that less is written between the
// kernels. At most 32 subtiles.
constexpr int kSplitLength = 4096;
constexpr int exactSplitKeys(int n) { return n <= kSplitLength ? 128 : n <= 16384 ? 256 : 512; }
// No sequence has more splits, exact or not.
constexpr int mostSplits(int max_length) {
  const int whole = (max_length + kSplitKeys - 1) / kSplitKeys;
  const int short_splits = ((max_length < kSplitLength ? max_length : kSplitLength) + 127) / 128;
  return whole > short_splits ? whole : short_splits > 0 ? short_splits : 1;
}
constexpr int kMostSplits = 1 << 15;  // of a sequence, in the combine kernel's sums

// Exact splits are reduced in two levels: groups of four in order, then the groups' results by
// eight partial sums (head_splits.cuh). A warp that takes a whole group reduces it itself, which
// writes less between the kernels. If there are few splits for many warps, each warp takes one,
// and the combine kernel reduces the group by the same operations (joined()): the bits are the
// same.
constexpr int kJoinedSplits = 4;

// If keys are chosen by their scores, a split's bytes are levels, one for eight keys: how far
// their largest score is below the split's max_score, in eighths of a power of two. The last
// level is all that is further.
constexpr int kLevelsPerSplit = kSplitKeys / 8;
constexpr int kLevels = 256;
constexpr float kLevelsInTwo = 8;

// Of one bit a key.
constexpr int bitWords(int n) { return n / 32 + 1; }

// What the split kernel does for heads that are not exact.
enum class SplitMode {
  kExact,    // nothing: dense, all are exact
  kJoined,   // the same where there are many splits: a warp may take four at once
  kWeights,  // weights from exact scores
  kShadow,   // weights from the keys' 4-bit shadow
  kFlash,    // draws and gathers by itself
};

// Keys that are chosen by their scores, which the split kernel then stores instead of weights.
// Other methods draw from weights.
constexpr bool choosesByScores(ChosenBy by) {
  return by == ChosenBy::kLargest || by == ChosenBy::kAdaptive || by == ChosenBy::kThreshold;
}

// How many keys a head chose: its list of draws begins with those that are always read, and goes
// on with those that are sampled.
struct Chosen {
  uint32_t fixed;
  uint32_t sampled;
  uint32_t tail;    // keys that were sampled from
  uint32_t pilots;  // keys of the sample before; they are in pilot_bits
};

// A tile's share of the draws of a head that rounds by largest remainders (tiles.cuh).
struct TileShare {
  uint64_t remainder;  // of its weight times the budget, divided by the weight of all
  uint32_t draws;
  uint32_t before;  // draws of the tiles before it
};

// One split and query head.
struct alignas(16) Split {
  float max_score;  // s' of its largest score; of sampled heads rounded up to a whole number
  uint32_t weight;  // of sampled heads: the sum of weights in units of 2^-24, at most 2^31; of
                    // exact ones: how many splits were joined to this one, itself among them
  float sum;        // sum of 2^(s' - max_score), s' = s log2(e), float32
  float pad;
};
// A weight is float16(2^(s' - max_score) / 2), max_score = ceil(largest s' of the split): at most
// a half, a multiple of 2^-24.
constexpr float kWeightUnits = 0x1p24f;
constexpr float kNoKeys = -3.4028235e38f;  // max_score of a split whose keys are all masked

// What went wrong, the smallest counts: kind << 56 | sequence << 24 | KV head.
enum class Wrong : uint32_t { kLength, kPage, kBudget, kScore, kKey, kValue };
constexpr unsigned long long kNothingWrong = ~0ull;

// What is done for a head of a sequence. kPages: it attends to pages of keys that their bounds
// choose; the split kernel does not know of it.
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
    const float* queries;
    const int32_t* page_table;
    const int32_t* lengths;
    const uint32_t* budgets;    // [rows], or [rows, heads]
    const uint32_t* sequences;  // DecodeInputs::sequences
    const uint32_t* steps;
    const float* bias;
    int64_t bias_stride;
    int window;  // keys of a sequence, its newest; 0: all
    int rows;    // sequences
    int heads;
    int group;  // query heads of a KV head
    int max_pages;
    uint32_t layer;
    uint64_t seed;
    float scale;
  } in;

  struct Outputs {
    float* out;
    void* rounded;  // null, or the same of the cache's element
    float* lse;
    RowStatistics* statistics;
    HeadStatistics* head_statistics;
    GroupStatistics* group_statistics;
  } out;

  // As in MethodOptions and the methods' table.
  struct How {
    bool uses_budget;     // false: every head with a budget is exact
    bool exact_from_all;  // a budget for every key is exact attention
    ChosenBy chosen_by;
    SplitMode mode;
    // ChosenBy::kAdaptive.
    uint32_t sink;
    uint32_t local;
    double sink_share;
    double local_share;
    int max_sample;  // most entries of the tail
    double heavy;
    double pilot;
    bool denominator_alone;  // adaptive-denominator
    VAttentionRule rule;
    DenominatorRule denominator_rule;
    float log_threshold;  // ChosenBy::kThreshold, in powers of two
    // ChosenBy::kPages.
    int page_keys;
    bool newest_within;
    // What tiles.cuh finishes.
    int tile_keys;  // 0: by the sequence's length
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
    float* scores;  // [rows, heads, max_splits, kSplitKeys], s', or null where weights are stored
    int32_t* draw_keys;  // [rows * heads, draw_stride], or null
    float* draw_weights;
    uint32_t draw_stride;  // a multiple of 8
    Chosen* chosen;        // [rows * heads], or null
    uint32_t* pilot_bits;  // [rows * heads, bitWords(max_length)], or null
    int statistics_words;  // of a set of keys that the statistics have room for
    uint32_t* sets;        // [rows * heads, 3, bitWords(max_length)] where a block has no room
    float* page_scores;    // quest's, [rows * heads, page_stride]; then the pages kept
    int page_stride;       // a multiple of 8
    TileShare* tiles;      // of largest remainders, [rows * heads, tile_stride]
    int tile_stride;
    float* queries;            // bernoulli's, [rows, heads, head_dim]
    uint32_t* features;        // that a head reads, [rows, heads]
    uint32_t* group_features;  // that a KV head's heads read together, [rows, kv_heads]
    unsigned long long* wrong;
  } space;

  // What kernels of kByHead alone read; the last, so that all else is where it is without.
  struct ByHead {
    bool has_head_budgets;            // Inputs::budgets are [rows, heads]
    const float* zero_budget_values;  // DecodeInputs::zero_budget_values, or null
  } by_head;
};

}  // namespace allot::kernels::cuda
