#pragma once
// Lists the sets of Philox counters ("domains") that a run uses; static_asserts prove that they are
// disjoint. Code that needs random numbers under a run's Philox key adds a domain here.
//
// A counter has four words: (sequence, step, stream, block). core/random_stream.h has an index in
// place of the first two. Layer l and head h of attention have stream l << 16 | h, below
// kFirstReservedStream. The others belong to core/random_stream.h and to the choice of tokens.
//
// Constants and pure functions: any thread, no dependency but philox.h.
#include <array>
#include <cstddef>
#include <cstdint>

#include "allot/kernels/philox.h"

namespace allot {

// ---- The words ----

// Sequences with this bit are rows of evaluations; the others are rows of rollouts.
inline constexpr uint32_t kEvaluationBit = 1u << 31;

// Steps with this bit are positions of a prompt; the others are decode steps. If a method draws in
// the prefill, each row of a batch prefills the prompt for itself, with its own sequence.
inline constexpr uint32_t kPromptBit = 1u << 31;

// Limits of the numbers of layers and heads. decodeAttention() refuses more.
inline constexpr uint32_t kStreamLayers = 0xffff;
inline constexpr int kStreamHeads = 1 << 16;
inline constexpr uint32_t kFirstReservedStream = kStreamLayers << 16;

// Returns the stream of one layer and query head.
ALLOT_HOST_DEVICE constexpr uint32_t attentionStream(uint32_t layer, uint32_t head) {
  return layer << 16 | head;
}

// Purposes for which core/ draws. Their streams come after those of attention.
enum class Purpose : uint32_t {
  kSchedule = 1,
  kQuestions = 2,
  kBootstrap = 3,
  kRepetition = 4,
  kLearner = 5
};
inline constexpr Purpose kLastPurpose = Purpose::kLearner;
constexpr uint32_t purposeStream(Purpose purpose) {
  return kFirstReservedStream + static_cast<uint32_t>(purpose);
}

inline constexpr uint32_t kTokenStream = UINT32_MAX;  // the choice of tokens

// Blocks of one head's attention. Draws by weight use blocks from kDrawBlocks on. In a sample
// without replacement key j has word j % 4 of block first + j / 4, where first is kPilotBlocks for
// a pilot and else kSampleBlocks. 2^29 keys have room.
inline constexpr uint32_t kDrawBlocks = 0;
inline constexpr uint32_t kPilotBlocks = 0;
inline constexpr uint32_t kSampleBlocks = 1u << 27;
inline constexpr uint32_t kFeatureBlocks = 1u << 28;       // bernoulli's features of one query
inline constexpr uint32_t kGroupFeatureBlocks = 2u << 28;  // of a group, in its first head's stream
inline constexpr uint32_t kEndOfBlocks = 3u << 28;

// ---- The domains ----

// The range first..last of one word, both included.
struct WordRange {
  uint32_t first = 0;
  uint32_t last = UINT32_MAX;
};

// The counters whose words are in these ranges.
struct PhiloxDomain {
  const char* name = "";
  WordRange sequence = {};
  WordRange step = {};
  WordRange stream = {};
  WordRange block = {};
};

constexpr bool overlap(WordRange a, WordRange b) { return a.first <= b.last && b.first <= a.last; }
constexpr bool overlap(const PhiloxDomain& a, const PhiloxDomain& b) {
  return overlap(a.sequence, b.sequence) && overlap(a.step, b.step) &&
         overlap(a.stream, b.stream) && overlap(a.block, b.block);
}
template <size_t N>
constexpr bool anyOverlap(const std::array<PhiloxDomain, N>& domains) {
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = i + 1; j < N; ++j) {
      if (overlap(domains[i], domains[j])) return true;
    }
  }
  return false;
}

inline constexpr WordRange kRolloutSequences = {0, kEvaluationBit - 1};
inline constexpr WordRange kEvaluationSequences = {kEvaluationBit, UINT32_MAX};
inline constexpr WordRange kDecodeSteps = {0, kPromptBit - 1};
inline constexpr WordRange kPromptSteps = {kPromptBit, UINT32_MAX};
inline constexpr WordRange kAttentionStreams = {0, kFirstReservedStream - 1};
constexpr WordRange only(uint32_t word) { return {word, word}; }
constexpr PhiloxDomain domainOf(const char* name, Purpose purpose) {
  return {.name = name, .stream = only(purposeStream(purpose))};
}

inline constexpr std::array kPhiloxDomains = {
    PhiloxDomain{.name = "attention of rollouts",
                 .sequence = kRolloutSequences,
                 .step = kDecodeSteps,
                 .stream = kAttentionStreams},
    PhiloxDomain{.name = "attention of evaluations",
                 .sequence = kEvaluationSequences,
                 .step = kDecodeSteps,
                 .stream = kAttentionStreams},
    PhiloxDomain{.name = "attention of prompts", .step = kPromptSteps, .stream = kAttentionStreams},
    PhiloxDomain{
        .name = "tokens of rollouts", .sequence = kRolloutSequences, .stream = only(kTokenStream)},
    PhiloxDomain{.name = "tokens of evaluations",
                 .sequence = kEvaluationSequences,
                 .stream = only(kTokenStream)},
    domainOf("schedules", Purpose::kSchedule),
    domainOf("order of questions", Purpose::kQuestions),
    domainOf("bootstrap", Purpose::kBootstrap),
    domainOf("Philox keys of repetitions", Purpose::kRepetition),
    domainOf("exploration of a learner", Purpose::kLearner),
};
static_assert(!anyOverlap(kPhiloxDomains), "two domains of Philox counters overlap");
static_assert(attentionStream(kStreamLayers - 1, kStreamHeads - 1) == kAttentionStreams.last);
static_assert(purposeStream(kLastPurpose) < kTokenStream);

// Blocks within one head's stream. Stages that draw for the same head must use disjoint blocks:
// bernoulli's features and the draws of its value stage; a pilot and the sample after it.
inline constexpr std::array kHeadDomains = {
    PhiloxDomain{.name = "draws, or pilots and samples",
                 .block = {kDrawBlocks, kFeatureBlocks - 1}},
    PhiloxDomain{.name = "features of a head", .block = {kFeatureBlocks, kGroupFeatureBlocks - 1}},
    PhiloxDomain{.name = "features of a group", .block = {kGroupFeatureBlocks, kEndOfBlocks - 1}},
};
static_assert(!anyOverlap(kHeadDomains), "two stages of a head draw from the same blocks");
inline constexpr std::array kSampleDomains = {
    PhiloxDomain{.name = "pilots", .block = {kPilotBlocks, kSampleBlocks - 1}},
    PhiloxDomain{.name = "samples", .block = {kSampleBlocks, kFeatureBlocks - 1}},
};
static_assert(!anyOverlap(kSampleDomains), "a sample and its pilot share blocks");

}  // namespace allot
