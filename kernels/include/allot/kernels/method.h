#pragma once
// A method of attention with its parameters, for prompts or decode steps, and its text form.
//
// The text stands in experiment files, reports and metric labels: a name and the key=value pairs
// that differ from the defaults, separated by single spaces.
//
//   s2anta-sys
//   s2anta-flash tileSize=64
//   bernoulli featureSamples=4 meanGroupQuery=true values=s2anta-sys
//   vattention epsilon=0.1 delta=0.1
//   sample-attention alphaColumn=0.9
//
// Pure functions, any thread; no dependency. kernels/README.md names the papers.
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

// A method's row of the table; method_names.h says what the columns are.
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
  Prompts prompts;
  int key_block;
  std::string_view reads;
};
// Returns all rows, in order of the table.
std::span<const MethodTraits> methodTable();
const MethodTraits& traitsOf(Method method);
constexpr bool includes(Phases phases, Phase phase) {
  const Phases one = phase == Phase::kPrefill ? Phases::kPrefill : Phases::kDecode;
  return (static_cast<int>(phases) & static_cast<int>(one)) != 0;
}
// Return the words of the documents, such as "prefill, decode" and "error bound".
std::string_view wordsOf(Phases phases);
std::string_view wordsOf(Promise promise);

// The scores that keys are ranked or drawn by (parameters `scores`, `bits` and `select`): q.k
// itself, or q.k~ with keys k~ of 3, 4 or 8 bits a channel.
enum class KeyScores { kExact = 0, kQ3 = 3, kQ4 = 4, kQ8 = 8 };

// What the weights of drawn rows are divided by (parameter `weights`; w_j the weights that make the
// mean over draws exact attention). kSelf: their sum, with a bias of order 1 / S. kExact: nothing.
// kCentred: nothing, and the mean value has the weight 1 - sum_j w_j; unbiased, too.
enum class Weights { kSelf, kExact, kCentred };

// A method and the parameters of all methods. A method ignores parameters that are not its own.
struct MethodOptions {
  Method method = Method::kDense;

  // s2anta-prop, s2anta-flash: keys in one tile. With tiles_by_length tileKeys() chooses that
  // number by the row's length, and tile_size is ignored.
  uint32_t tile_size = 256;
  bool tiles_by_length = false;

  // s2anta-prop: rounds the tiles' shares of the sample budget by largest remainders (SANTA paper,
  // Algorithm 4, which is biased), instead of systematically over all keys.
  bool largest_remainder = false;

  // Methods that draw by weight, and bernoulli in front of one: a budget of at least the number of
  // keys makes draws instead of giving exact attention.
  bool never_exact = false;

  // s2anta-q4: the bits of the shadow that proposes draws. top-k, vattention and
  // adaptive-denominator: the scores that find heavy keys. sale: the scores that choose blocks.
  // parseMethod() defaults to kQ4 for s2anta-q4 and sale.
  KeyScores scores = KeyScores::kExact;

  // s2anta-q4, and methods that draw for groups. With s2anta-q4 anything but kSelf needs every
  // exact score, and is for analysis.
  Weights weights = Weights::kSelf;

  // santa, s2anta-strat, s2anta-sys, s2anta-prop, s2anta-q4: draws once for all query heads of a KV
  // head, from the mean of their attentions, and every head uses every drawn row. With
  // norm_proposal, norms of values change what is drawn from. docs/shared-draws.md
  bool group_draws = false;
  bool norm_proposal = false;
  // top-k, quest, vattention, adaptive-denominator: chooses once for all query heads of a KV head.
  bool group_choice = false;

  // bernoulli: scores from ternary queries. The method `values` chooses values by these scores.
  uint32_t feature_samples = 8;   // ternary vectors whose mean replaces a query
  bool mean_group_query = false;  // one set of features for all query heads of a KV head
  bool iid_features = false;      // independent draws rather than stratified ones
  Method values = Method::kDense;

  // vattention, adaptive-denominator.
  uint32_t sink = 16;       // first keys, always read
  uint32_t local = 16;      // last keys, always read
  double sink_share = 0;    // above 0: this share of the row's keys instead of `sink`, rounded up
  double local_share = 0;   // above 0: this share instead of `local`, rounded up
  double heavy = 0.05;      // share of the other keys that is read, the heaviest
  double pilot = 0.05;      // share of the rest (the tail) sampled to estimate its spread
  double epsilon = 0.05;    // relative error of the output (adaptive-denominator: denominator)...
  double delta = 0.05;      // ...exceeded with at most this probability
  uint32_t max_budget = 0;  // most tail keys sampled a head; 0: no limit; a limit voids epsilon
  // vattention: numerator and denominator have half of delta each, instead of the split that needs
  // the fewest rows.
  bool half_delta = false;
  // vattention: uses the pilot's estimate of a numerator that the pilot cannot tell from 0. If
  // false, that numerator counts as 0, and as many keys are read as max_budget allows.
  bool trusts_numerator = false;

  // quest: keys in one of its pages: 16, 32 or 64.
  uint32_t page_size = 16;
  // quest: the newest page is one of the budget's pages, not an additional one, and statistics
  // count bounds as float32.
  bool newest_within = false;

  // sample-attention (selectBlocks() in prefill.h): shares of the sampled attention that kept
  // columns and slashes hold, positions in a block, and positions that share one selection.
  double alpha_column = 0.95;
  double alpha_slash = 0.95;
  uint32_t block = 64;
  uint32_t chunk = 4096;

  // sale (selectBlocks() in prefill.h): a block is kept if a weight, relative to the first and last
  // blocks, reaches tau. A chunk that ends within the first dense_keys positions keeps all blocks,
  // as in the authors' code. With profile_tau the caller gives each head its own tau, and `tau` is
  // ignored.
  double tau = 0.004;
  bool profile_tau = false;
  uint32_t dense_keys = 1024;

  // skip-softmax: drops blocks whose weights, relative to the running maximum, are below this.
  double threshold = 0.001;

  bool operator==(const MethodOptions&) const = default;
};

// Returns the options that the method's name alone stands for.
MethodOptions methodDefaults(Method method);

// Reads a text form. Returns nothing, or one sentence that names the fault; a fault leaves
// `options` unchanged.
std::optional<std::string> parseMethod(std::string_view text, MethodOptions* options,
                                       Phase phase = Phase::kDecode);

// Returns the method's name and those of its parameters that differ from the defaults, in one
// order: equal options have equal texts.
std::string methodText(const MethodOptions& options);

// Returns the names of a phase's methods, in order of the table.
const std::vector<std::string_view>& methodNames(Phase phase = Phase::kDecode);
std::string_view methodName(Method method);

// Returns true if the reads depend on the sample budget. dense, bernoulli in front of dense,
// vattention, adaptive-denominator, sample-attention, sale and skip-softmax ignore it, except that
// a decode step silences any head with budget 0.
bool usesBudget(const MethodOptions& options);

// Return true if the method draws (draws=group) or chooses (choose=group) once for all query heads
// of a KV head.
bool drawsForGroup(const MethodOptions& options);
bool choosesForGroup(const MethodOptions& options);
// Return the methods that can.
const std::vector<Method>& groupDrawingMethods();
const std::vector<Method>& groupChoosingMethods();

// Returns true if entries are drawn with probabilities that follow their weights.
bool drawsByWeight(ChosenBy by);
// Returns false if the method draws by weight and exactAbove=never: it then draws also with a
// budget of at least the number of keys.
bool exactFromAllKeys(const MethodOptions& options);

// Returns the keys of a tile in a row of n keys (s2anta-prop, s2anta-flash). With tiles_by_length:
// 32 up to n = 1536, 64 up to 3072, 256 beyond, as in the SANTA authors' kernels.
int tileKeys(const MethodOptions& options, int n);
// Return how many keys of a row of n are always read at its beginning and at its end (vattention,
// adaptive-denominator), at most n.
int sinkKeys(const MethodOptions& options, int n);
int localKeys(const MethodOptions& options, int n);

// Returns the bits of the key shadow that the method reads; 0: none.
int shadowBits(const MethodOptions& options);
// What the bytes of a decode step depend on, for one KV head.
struct StepShape {
  uint64_t keys = 0;           // n
  uint64_t group = 1;          // query heads that share the KV head
  uint64_t head_dim = 0;       // channels of a key or value
  uint64_t element_bytes = 2;  // of a channel in the cache
};
// Returns the most bytes of keys, shadows and values that a step reads of one KV head if each of
// its query heads has the sample budget `budget`: each draw reads a row that no other draw of the
// group reads, as long as there is one. Returns nothing for a method whose reads are not a score of
// every key and `budget` draws. With budget 0 nothing is read: DecodeOutputs::lse is null.
std::optional<uint64_t> mostBytes(const MethodOptions& options, const StepShape& shape,
                                  uint64_t budget);
// Returns true if the method reads the keys' bounds (quest).
bool readsBounds(const MethodOptions& options);

// Returns true for sample-attention, sale and skip-softmax: attendBlocks() reads a prompt by the
// blocks of keys that they choose (prefill.h).
bool choosesBlocks(const MethodOptions& options);
// Returns true for those and dense: attendBlocks() reads a prompt, and nothing is drawn.
bool readsByBlocks(const MethodOptions& options);
// Returns true if selectBlocks() makes lists of the blocks (sample-attention, sale).
bool makesLists(const MethodOptions& options);
// Returns true if selectBlocks() needs a threshold for each head (sale).
bool hasHeadThresholds(const MethodOptions& options);
// Returns PrefillInputs::skip: the threshold of skip-softmax, 0 for other methods.
float skipThreshold(const MethodOptions& options);
// Return the positions of a prompt's blocks of queries and of keys; 64 for methods without blocks.
int queryBlockOf(const MethodOptions& options);
int keyBlockOf(const MethodOptions& options);
// Returns the positions that one selection is for, where the caller reads `chunk` at once.
int selectionPositions(const MethodOptions& options, int chunk);

// Returns true if the method aims at an error, epsilon with probability 1 - delta (vattention,
// adaptive-denominator).
bool hasErrorTarget(const MethodOptions& options);

// Returns nothing if the GPU's kernels have this method in this phase; else one sentence that says
// what they have. cuda::unavailable() says if this build and machine have a GPU.
std::optional<std::string> gpuUnsupported(const MethodOptions& options,
                                          Phase phase = Phase::kDecode);

// A parameter of methods, in words of the documents. The default is that of the first of `methods`.
struct ParameterInfo {
  std::string key;
  std::string methods;  // "s2anta-prop, s2anta-flash"
  std::string default_value;
  std::string allowed;
  std::string meaning;
};
std::vector<ParameterInfo> methodParameterTable();

// Returns the documents' table of parameters, which has rows such as
// "| `tileSize` | s2anta-prop, s2anta-flash | 256 | 16..65536 | keys in one tile |".
std::string methodParametersMarkdown();

}  // namespace allot::kernels
