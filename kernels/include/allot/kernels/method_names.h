#pragma once
// The table of methods, one row each, and the only list of them. Parsing, refusals, `allot
// methods`, the documents, dispatch, the benchmark's counts and the tests use it.
//
// ALLOT_METHODS(X) calls X(enumerator, name, phases, scored_by, chosen_by, draws, needs, own_error,
// promise, gpu, prompts, key_block, select, reads):
//   name       the name in an experiment file;
//   phases     kPrefill reads prompts, kDecode writes answers, kBoth does both;
//   scored_by, chosen_by, draws, needs, own_error, promise, prompts   the enums below;
//   gpu        the phases that the GPU's kernels have;
//   key_block  the positions of a block of keys of a prompt, where blocks are chosen or drawn, or
//              kBlockParameter;
//   select     the CPU's function in decode, which kernels/cpu/methods.h declares from this table,
//              or noSelect, if every entry is read or other stages do the work;
//   reads      a sentence for the documents.
namespace allot::kernels {

enum class Phases { kNone = 0, kPrefill = 1, kDecode = 2, kBoth = 3 };

// The scores that keys are ranked or drawn by.
enum class ScoredBy {
  kExact,     // q.k
  kShadow,    // q.k~ of the cache's shadow, in a few bits a channel
  kEither,    // kExact's or kShadow's, by the parameter `scores`
  kOwnCodes,  // q.k~ in 4 bits that the selection makes itself, or q.k
  kBounds,    // an upper bound of q.k in a page of keys
  kFeatures,  // an estimate of q.k from ternary draws of the query
};

// How entries (a key with its value) are chosen by the scores; S is the sample budget. The GPU's
// kernels branch on these numbers.
enum class ChosenBy {
  kAll = 0,            // every entry
  kSystematic = 1,     // S draws by weight, at equal distances from one random offset
  kStratified = 2,     // one draw in each of S strata of equal weight
  kIndependent = 3,    // S independent draws by weight
  kLargest = 4,        // the S largest
  kAdaptive = 5,       // first, last, largest, and random others, as many as an error bound needs
  kTiles = 6,          // systematic draws of equal number in every tile
  kPages = 7,          // whole pages: the newest and about the best S / pageSize
  kColumnsAndSlashes,  // blocks that hold a share of the sampled queries' attention
  kThreshold,          // blocks with a weight that reaches a threshold
  kBlockDraws,         // S blocks, drawn by weight
  kRowDraws,           // S rows for each head of a group and block of queries, drawn once for all
  kOfValues,           // by the method that the parameter `values` names
  kOther,              // in another way, which uses S
};

// The draws that Selection::draws counts for a head of n keys with sample budget S < n, repetitions
// and entries that are always read included. Tests hold every method to its row.
enum class Draws {
  kNone,     // not given by S alone
  kS,        // exactly S
  kAtMostS,  // S or fewer; if there are more tiles than S, one for each tile or fewer
};

// What the select function reads of a Head. kScores: scores and weights alone, so that it also
// works with bernoulli's scores (`bernoulli values=`). kKeys: keys or positions, too.
enum class Needs { kScores, kKeys };

// Says if a method estimates the relative error of its output.
enum class OwnError { kEstimated, kUnknown };

// The promise about the output.
enum class Promise {
  kExact,           // exact attention
  kUnbiased,        // the mean over draws is exact attention
  kConsistent,      // a bias that falls as 1 / S
  kErrorBound,      // a relative error above epsilon has a probability of at most delta
  kAttentionBound,  // dropped keys have little attention, by a stated bound
  kNone,
};

// How a prompt is read (prefill.h).
enum class Prompts {
  kNone,         // not at all
  kQueries,      // query by query, as decode does: attendQueries()
  kAllKeys,      // attendBlocks() without a list
  kLists,        // selectBlocks(), then attendBlocks() over its list
  kSkipping,     // attendBlocks() with PrefillInputs::skip
  kDrawnBlocks,  // attendSampledBlocks()
  kDrawnRows,    // attendSampledRows()
};

// The parameter `block`, which is then the size of blocks of queries, too.
constexpr int kBlockParameter = -1;

}  // namespace allot::kernels

// A build may add methods: ALLOT_METHODS_FILE names a header that defines ALLOT_MORE_METHODS(X)
// (kernels/example/uniform_method.h).
#ifdef ALLOT_METHODS_FILE
#include ALLOT_METHODS_FILE
#else
#define ALLOT_MORE_METHODS(X)
#endif

// clang-format off
#define ALLOT_METHODS(X) \
  X(kDense, "dense", kBoth, kExact, kAll, kNone, kScores, kEstimated, kExact, kBoth, kAllKeys, 64, \
    noSelect, \
    "reads every key and value; exact, the baseline") \
  X(kSanta, "santa", kBoth, kExact, kIndependent, kS, kScores, kEstimated, kUnbiased, kDecode, \
    kQueries, 0, selectSanta, \
    "draws value rows independently by their attention weight; unbiased") \
  X(kS2antaStrat, "s2anta-strat", kBoth, kExact, kStratified, kS, kScores, kEstimated, kUnbiased, \
    kDecode, kQueries, 0, selectS2antaStrat, \
    "one draw in each of S strata of equal weight; unbiased, never noisier") \
  X(kS2antaSys, "s2anta-sys", kBoth, kExact, kSystematic, kS, kScores, kEstimated, kUnbiased, \
    kDecode, kQueries, 0, selectS2antaSys, \
    "one random offset, thresholds evenly apart; unbiased, the least noisy of them") \
  X(kS2antaProp, "s2anta-prop", kBoth, kExact, kSystematic, kS, kScores, kEstimated, kUnbiased, \
    kDecode, kQueries, 0, selectS2antaProp, \
    "the draws of s2anta-sys, computed from the weights of tiles") \
  X(kS2antaFlash, "s2anta-flash", kBoth, kExact, kTiles, kAtMostS, kScores, kEstimated, kUnbiased, \
    kDecode, kQueries, 0, selectS2antaFlash, \
    "an equal number of draws in every tile, weighted afterwards; unbiased") \
  X(kS2antaQ4, "s2anta-q4", kBoth, kShadow, kSystematic, kS, kKeys, kEstimated, kConsistent, \
    kDecode, kQueries, 0, selectS2antaQ4, \
    "draws by low-bit copies of the keys, then weighs the drawn rows exactly") \
  X(kTopK, "top-k", kBoth, kEither, kLargest, kS, kScores, kUnknown, kNone, kDecode, kQueries, 0, \
    selectTopK, \
    "the S heaviest rows, renormalised; biased") \
  X(kBernoulli, "bernoulli", kBoth, kFeatures, kOfValues, kNone, kKeys, kUnknown, kNone, kDecode, \
    kQueries, 0, noSelect, \
    "scores from a few random query features, in front of a value stage") \
  X(kVAttention, "vattention", kBoth, kEither, kAdaptive, kNone, kKeys, kEstimated, kErrorBound, \
    kDecode, kQueries, 0, selectVAttention, \
    "first, last and heaviest rows, and as many random others as (epsilon, delta) asks") \
  X(kAdaptiveDenominator, "adaptive-denominator", kBoth, kEither, kAdaptive, kNone, kKeys, \
    kEstimated, kNone, kDecode, kQueries, 0, selectAdaptiveDenominator, \
    "vattention with a budget for the denominator alone; for comparison") \
  X(kQuest, "quest", kDecode, kBounds, kPages, kNone, kKeys, kUnknown, kNone, kDecode, kNone, 0, \
    selectQuest, \
    "the pages of keys whose bounds promise the largest scores; biased") \
  X(kSampleAttention, "sample-attention", kPrefill, kExact, kColumnsAndSlashes, kNone, kKeys, \
    kUnknown, kAttentionBound, kPrefill, kLists, kBlockParameter, noSelect, \
    "the fewest columns and slashes of blocks that hold alpha of the last queries' attention") \
  X(kSale, "sale", kPrefill, kOwnCodes, kThreshold, kNone, kKeys, kUnknown, kAttentionBound, \
    kPrefill, kLists, 32, noSelect, \
    "blocks of keys with a weight of tau, by 4-bit scores relative to first and last blocks") \
  X(kSkipSoftmax, "skip-softmax", kBoth, kExact, kThreshold, kNone, kKeys, kUnknown, \
    kAttentionBound, kBoth, kSkipping, 64, selectSkipSoftmax, \
    "all scores; values of blocks with a weight of threshold or more") \
  X(kSampledBlocks, "sampled-blocks", kPrefill, kExact, kBlockDraws, kNone, kKeys, kUnknown, \
    kUnbiased, kPrefill, kDrawnBlocks, 64, noSelect, \
    "all scores; draws S blocks of 64 values by the attention that they give it; unbiased") \
  X(kSampledRows, "sampled-rows", kPrefill, kEither, kRowDraws, kNone, kKeys, kUnknown, \
    kConsistent, kNone, kDrawnRows, 64, noSelect, \
    "all scores; draws rows once for 64 queries and a KV head's heads; first keys and the diagonal whole") \
  ALLOT_MORE_METHODS(X)
// clang-format on
