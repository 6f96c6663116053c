#pragma once
// How attention is computed, of a prompt or in a decode step: a method with its parameters, and its
// text form.
//
// The text is what an experiment file, a report and a metric's label show: a name and key=value
// pairs that differ from the defaults, separated by single spaces.
//
//   s2anta-sys
//   s2anta-flash tileSize=64
//   bernoulli featureSamples=4 meanGroupQuery=true values=s2anta-sys
//   vattention epsilon=0.1 delta=0.1
//   sample-attention alphaColumn=0.9
//
// Pure functions, any thread; no dependency.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method_names.h"

namespace allot::kernels {

#define ALLOT_ENUMERATOR(enumerator, ...) enumerator,
enum class Method { ALLOT_METHODS(ALLOT_ENUMERATOR) };
#undef ALLOT_ENUMERATOR

// Prefill reads a prompt, decode writes an answer.
enum class Phase { kPrefill, kDecode };

// A method's entry in the table (method_names.h).
struct MethodTraits {
  Method method;
  std::string_view name;
  Phases phases;
  ScoredBy scored_by;
  ChosenBy chosen_by;
  Draws draws;
  Needs needs;
  OwnError own_error;
  Promise promise;
  Phases gpu;
  std::string_view reads;
};
// All of them, in order of the list.
std::span<const MethodTraits> methodTable();
const MethodTraits& traitsOf(Method method);
constexpr bool includes(Phases phases, Phase phase) {
  const Phases one = phase == Phase::kPrefill ? Phases::kPrefill : Phases::kDecode;
  return (static_cast<int>(phases) & static_cast<int>(one)) != 0;
}
// As documents have them: "prefill, decode", "error bound".
std::string_view wordsOf(Phases phases);
std::string_view wordsOf(Promise promise);

// The parameter `scores`: q.k itself, or q.k~ with the keys' shadow of that many bits.
enum class KeyScores { kExact = 0, kQ3 = 3, kQ4 = 4, kQ8 = 8 };

struct MethodOptions {
  Method method = Method::kDense;

  // s2anta-prop, s2anta-flash: keys in one tile; or by the row's length (tileKeys).
  uint32_t tile_size = 256;
  bool tiles_by_length = false;

  // s2anta-prop: a tile's share of S becomes draws by the largest remainders (true), as in the
  // SANTA paper's Algorithm 4, which is biased, or as systematic sampling of all keys has it
  // (false).
  bool largest_remainder = false;

  // Methods that draw: S draws where S is the number of keys or more, too, not exact attention.
  bool never_exact = false;

  // s2anta-q4: bits of the keys' shadow that draws are proposed from. top-k, vattention and
  // adaptive-denominator: what the heavy keys are found by. sale: what its blocks are chosen by.
  KeyScores scores = KeyScores::kExact;

  // s2anta-q4: divide by the sum of the drawn weights (false), or by the exact normaliser, which
  // needs every exact score and is there for analysis (true).
  bool exact_weights = false;

  // bernoulli: ternary queries in front of the value stage `values`.
  uint32_t feature_samples = 8;   // B
  bool mean_group_query = false;  // one set of features for all query heads of a KV head
  bool iid_features = false;      // independent draws rather than stratified ones
  Method values = Method::kDense;

  // vattention, adaptive-denominator.
  uint32_t sink = 16;       // first keys, always read
  uint32_t local = 16;      // last keys, always read
  double sink_share = 0;    // above 0: a share of the row's keys instead of `sink`, rounded up
  double local_share = 0;   // the same for `local`
  double heavy = 0.05;      // share of the other keys read as the heaviest
  double pilot = 0.05;      // share of the rest sampled to estimate its spread
  double epsilon = 0.05;    // relative error of the output...
  double delta = 0.05;      // ...exceeded with at most this probability
  uint32_t max_budget = 0;  // most tail rows sampled a head; 0: no limit (a limit voids the claim)
  // vattention alone: numerator and denominator have a half of delta each, not what needs fewest
  // rows.
  bool half_delta = false;
  // vattention alone: a numerator that the pilot cannot tell from 0 is what the pilot says. Else it
  // is 0, for which every row is read.
  bool trusts_numerator = false;

  // quest: keys in one page of its own bounds, a multiple of 16.
  uint32_t page_size = 16;
  // quest: the newest page is the first of the budget's, not beside them; bounds count as float32.
  bool newest_within = false;

  // sample-attention: shares of the mass that kept columns and slashes hold, positions in a block,
  // and positions that one selection is for.
  double alpha_column = 0.95;
  double alpha_slash = 0.95;
  uint32_t block = 64;
  uint32_t chunk = 4096;

  // sale: the weight, relative to the first and last blocks, from which a block is kept; so many
  // keys are read whole. With profile_tau each head has its own, which the caller gives, and `tau`
  // is not looked at.
  double tau = 0.004;
  bool profile_tau = false;
  uint32_t dense_keys = 1024;

  // skip-softmax: blocks whose weights, relative to the largest score before, are below it are left
  // out.
  double threshold = 0.001;

  bool operator==(const MethodOptions&) const = default;
};

// Reads a text form. Nothing if all is well; else one sentence that says what is wrong and what is
// allowed, and `options` is as it was.
std::optional<std::string> parseMethod(std::string_view text, MethodOptions* options,
                                       Phase phase = Phase::kDecode);

// Returns the shortest text that parses to these options: equal options have equal texts.
std::string methodText(const MethodOptions& options);

// Names of that phase's methods, in order of the list.
const std::vector<std::string_view>& methodNames(Phase phase = Phase::kDecode);
std::string_view methodName(Method method);

// False for methods that read what they need whatever the sample budget (dense, vattention,
// adaptive-denominator, bernoulli in front of dense, all that choose blocks): a budget of 0 still
// silences the layer.
bool usesBudget(const MethodOptions& options);

// False where a budget of as many draws as keys, or more, is so many draws (exactAbove=never); else
// it is exact attention.
// Returns true if entries are drawn with probabilities that follow their weights.
bool drawsByWeight(ChosenBy by);
bool exactFromAllKeys(const MethodOptions& options);

// Keys of one tile in a row of n (s2anta-prop, s2anta-flash). By the row's length they are 32 up to
// n = 1536, 64 up to 3072 and 256 beyond: the rule of the SANTA authors' released kernels.
int tileKeys(const MethodOptions& options, int n);
// Keys of a row of n that are always read at its beginning and at its end (vattention,
// adaptive-denominator), n at most.
int sinkKeys(const MethodOptions& options, int n);
int localKeys(const MethodOptions& options, int n);

// Bits of the key shadow that the method reads; 0: none.
int shadowBits(const MethodOptions& options);
// True if the method reads the keys' page bounds (quest).
bool readsBounds(const MethodOptions& options);

// True if a prompt's blocks of keys are chosen, for all queries of a chunk (prefill.h); false where
// each query is attended to as in a decode step, and for dense.
bool choosesBlocks(const MethodOptions& options);

// True if an error is aimed at, epsilon with probability delta (vattention, adaptive-denominator).
bool hasErrorTarget(const MethodOptions& options);

// Nothing if the GPU's kernels have this method in this phase; else one sentence that says what
// they have. Whether this build and machine have a GPU at all: cuda_decode.h.
std::optional<std::string> gpuUnsupported(const MethodOptions& options,
                                          Phase phase = Phase::kDecode);

// What a parameter of methods is, for people.
struct ParameterInfo {
  std::string key;
  std::string methods;  // "s2anta-prop, s2anta-flash"
  std::string default_value;
  std::string allowed;
  std::string meaning;
};
std::vector<ParameterInfo> methodParameterTable();

// "| `tileSize` | s2anta-prop, s2anta-flash | 256 | 16..65536 | keys in one tile |", a row for each
// parameter: the table in the documents.
std::string methodParametersMarkdown();

}  // namespace allot::kernels
