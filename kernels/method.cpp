#include "allot/kernels/method.h"

#include <algorithm>

#include "kernels/adaptive_rule.h"
#include "kernels/method_parameters.h"

namespace allot::kernels {
namespace {

// clang-format off
#define ALLOT_TRAITS(enumerator, name, phases, scored_by, chosen_by, draws, needs, own_error, \
                     promise, gpu, prompts, key_block, select, reads) \
  {Method::enumerator, name, Phases::phases, ScoredBy::scored_by, ChosenBy::chosen_by, \
   Draws::draws, Needs::needs, OwnError::own_error, Promise::promise, Phases::gpu, \
   Prompts::prompts, key_block, reads},
// clang-format on
constexpr MethodTraits kTable[] = {ALLOT_METHODS(ALLOT_TRAITS)};
#undef ALLOT_TRAITS

std::vector<std::string_view> namesWhere(bool (*holds)(const MethodTraits&)) {
  std::vector<std::string_view> names;
  for (const MethodTraits& method : kTable) {
    if (holds(method)) names.push_back(method.name);
  }
  return names;
}

template <typename T>
bool contains(const std::vector<T>& list, const T& one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

// Returns the method that chooses entries: bernoulli leaves that to `values`.
Method valueStage(const MethodOptions& options) {
  return traitsOf(options.method).chosen_by == ChosenBy::kOfValues ? options.values
                                                                   : options.method;
}

const Parameter& parameterOf(Method method, std::string_view key) {
  const auto& all = methodParameters();
  return *std::find_if(all.begin(), all.end(), [&](const Parameter& parameter) {
    return parameter.key == key && contains(parameter.methods, method);
  });
}

// Returns true if the GPU draws in tiles of this size: whole subtiles of a split, or a split.
bool gpuDrawsByTiles(const MethodOptions& options) {
  return options.tiles_by_length || (options.tile_size % 16 == 0 && 256 % options.tile_size == 0);
}

// A parameter with values that the GPU's kernels lack.
struct GpuLimit {
  Method method;
  std::string_view key;
  std::vector<std::string_view> values;
  bool (*holds)(const MethodOptions&) = nullptr;  // null: holds if the value is one of `values`
};
const std::vector<GpuLimit>& gpuLimits() {
  static const std::vector<GpuLimit> all = {
      {Method::kS2antaFlash, "tileSize", {"16, 32, 64, 128, 256, auto"}, gpuDrawsByTiles},
      {Method::kS2antaQ4, "bits", {"4"}},
      {Method::kS2antaQ4, "weights", {"self"}},
      {Method::kSanta, "proposal", {"attention"}},
      {Method::kSanta, "weights", {"self", "exact"}},
      {Method::kS2antaStrat, "proposal", {"attention"}},
      {Method::kS2antaStrat, "weights", {"self", "exact"}},
      {Method::kS2antaSys, "proposal", {"attention"}},
      {Method::kS2antaSys, "weights", {"self", "exact"}},
      {Method::kS2antaProp, "proposal", {"attention"}},
      {Method::kS2antaProp, "weights", {"self", "exact"}},
      {Method::kS2antaQ4, "proposal", {"attention"}},
      {Method::kSampleAttention, "block", {"64"}},
      {Method::kSale, "select", {"q4"}},
      {Method::kTopK, "scores", {"exact", "q4"}},
      {Method::kQuest, "choose", {"head"}},
      {Method::kVAttention, "scores", {"exact", "q4"}},
      {Method::kAdaptiveDenominator, "scores", {"exact", "q4"}},
      // Only largest remainders make draws that depend on the tile's size.
      {Method::kS2antaProp,
       "tileSize",
       {"16, 32, 64, 128, 256, auto"},
       [](const MethodOptions& o) { return !o.largest_remainder || gpuDrawsByTiles(o); }},
  };
  return all;
}

std::optional<std::string> readParameter(std::string_view word, MethodOptions* options) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  std::vector<std::string_view> known;
  for (const Parameter& parameter : methodParameters()) {
    if (!contains(parameter.methods, options->method)) continue;
    known.push_back(parameter.key);
    if (parameter.key != key) continue;
    if (equals == word.npos || !parameter.read(word.substr(equals + 1), options)) {
      return std::string(key) + (equals == word.npos ? " has no value" : ": a bad value") +
             "; allowed: " + std::string(parameter.allowed);
    }
    return std::nullopt;
  }
  return std::string(methodName(options->method)) +
         (known.empty() ? " takes no parameters"
                        : " has no such parameter; it takes " + joined(known));
}

// Returns what is wrong with parameters that do not go together.
std::optional<std::string> contradiction(const MethodOptions& o, Phase phase) {
  if (phase == Phase::kPrefill && o.weights == Weights::kCentred) {
    return "weights=centred does not read prompts: means of values are kept for answers alone";
  }
  if (o.group_draws && o.largest_remainder) {
    return "rounding=largest-remainder is for draws=head: a group draws from all tiles at once";
  }
  if (traitsOf(o.method).chosen_by == ChosenBy::kRowDraws) {
    if (o.weights == Weights::kSelf || o.scores == KeyScores::kExact) return std::nullopt;
    return "weights=exact needs scores=exact: other scores do not have the exact normaliser";
  }
  if (o.group_draws) return std::nullopt;
  if (o.norm_proposal) return "proposal=attention-norm needs draws=group";
  if (o.weights == Weights::kCentred) return "weights=centred needs draws=group";
  if (o.weights != Weights::kSelf && o.method != Method::kS2antaQ4) {
    return "weights=exact needs draws=group: a head's own draws have equal weights";
  }
  return std::nullopt;
}

}  // namespace

std::span<const MethodTraits> methodTable() { return kTable; }

const MethodTraits& traitsOf(Method method) { return kTable[static_cast<size_t>(method)]; }

std::string_view methodName(Method method) { return traitsOf(method).name; }

std::string_view wordsOf(Phases phases) {
  switch (phases) {
    case Phases::kNone:
      return "";
    case Phases::kPrefill:
      return "prefill";
    case Phases::kDecode:
      return "decode";
    case Phases::kBoth:
      return "prefill, decode";
  }
  return "";
}

std::string_view wordsOf(Promise promise) {
  switch (promise) {
    case Promise::kExact:
      return "exact";
    case Promise::kUnbiased:
      return "unbiased";
    case Promise::kConsistent:
      return "bias of order 1/S";
    case Promise::kErrorBound:
      return "error bound";
    case Promise::kAttentionBound:
      return "bound of what is left out";
    case Promise::kNone:
      return "none";
  }
  return "";
}

const std::vector<std::string_view>& methodNames(Phase phase) {
  static const std::vector<std::string_view> prefill =
      namesWhere([](const MethodTraits& m) { return includes(m.phases, Phase::kPrefill); });
  static const std::vector<std::string_view> decode =
      namesWhere([](const MethodTraits& m) { return includes(m.phases, Phase::kDecode); });
  return phase == Phase::kPrefill ? prefill : decode;
}

MethodOptions methodDefaults(Method method) {
  MethodOptions options;
  options.method = method;
  const ScoredBy by = traitsOf(method).scored_by;
  if (by == ScoredBy::kShadow || by == ScoredBy::kOwnCodes) options.scores = KeyScores::kQ4;
  return options;
}

std::optional<std::string> parseMethod(std::string_view text, MethodOptions* options, Phase phase) {
  const size_t space = text.find(' ');
  const std::string_view name = text.substr(0, space);
  const auto found = std::find_if(std::begin(kTable), std::end(kTable),
                                  [&](const MethodTraits& known) { return known.name == name; });
  if (found == std::end(kTable)) return "no such method; there are " + joined(methodNames(phase));
  if (!includes(found->phases, phase)) {
    const bool prefill = phase == Phase::kPrefill;
    return std::string(name) +
           (prefill ? " does not read prompts; what does: "
                    : " reads prompts alone; for answers: ") +
           joined(methodNames(phase));
  }
  MethodOptions parsed = methodDefaults(found->method);
  std::vector<std::string_view> seen;
  for (size_t from = space; from != text.npos;) {
    const size_t start = from + 1;
    from = text.find(' ', start);
    const std::string_view word = text.substr(start, from == text.npos ? from : from - start);
    if (word.empty()) return "write single spaces between its parameters, and none at the end";
    if (auto wrong = readParameter(word, &parsed)) return wrong;
    const std::string_view key = word.substr(0, word.find('='));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return std::string(key) + " is given twice";
    }
    seen.push_back(key);
  }
  if (auto wrong = contradiction(parsed, phase)) return wrong;
  *options = parsed;
  return std::nullopt;
}

std::string methodText(const MethodOptions& options) {
  const MethodOptions left_out = methodDefaults(options.method);
  std::string text(methodName(options.method));
  for (const Parameter& parameter : methodParameters()) {
    if (!contains(parameter.methods, options.method)) continue;
    const std::string value = parameter.write(options);
    if (value != parameter.write(left_out)) {
      text.append(" ").append(parameter.key).append("=").append(value);
    }
  }
  return text;
}

bool usesBudget(const MethodOptions& options) {
  switch (traitsOf(valueStage(options)).chosen_by) {
    case ChosenBy::kAll:
    case ChosenBy::kAdaptive:
    case ChosenBy::kColumnsAndSlashes:
    case ChosenBy::kThreshold:
      return false;
    default:
      return true;
  }
}

std::optional<uint64_t> mostBytes(const MethodOptions& options, const StepShape& shape,
                                  uint64_t budget) {
  const ChosenBy by = traitsOf(options.method).chosen_by;
  if (by != ChosenBy::kSystematic && by != ChosenBy::kStratified && by != ChosenBy::kIndependent &&
      by != ChosenBy::kLargest) {
    return std::nullopt;
  }
  if (budget == 0) return 0;
  const uint64_t n = shape.keys, row = shape.head_dim * shape.element_bytes;
  const uint64_t rows = std::min(budget, n) * shape.group;
  const bool together = drawsForGroup(options) || choosesForGroup(options);
  const bool enough = (together && drawsByWeight(by) ? rows : budget) >= n;
  if (enough && exactFromAllKeys(options)) return 2 * n * row;
  const uint64_t drawn = std::min(rows, n);
  const uint64_t norms = options.norm_proposal ? n * sizeof(float) : 0;
  const int bits = shadowBits(options);
  if (bits == 0) return n * row + drawn * row + norms;
  // Other weights than kSelf need every exact score.
  const uint64_t keys = options.weights == Weights::kSelf ? drawn : n;
  return n * (shape.head_dim * static_cast<uint64_t>(bits) / 8 + sizeof(float)) + norms +
         (keys + drawn) * row;
}

const std::vector<Method>& groupDrawingMethods() {
  static const std::vector<Method> all = {Method::kSanta, Method::kS2antaStrat, Method::kS2antaSys,
                                          Method::kS2antaProp, Method::kS2antaQ4};
  return all;
}

const std::vector<Method>& groupChoosingMethods() {
  static const std::vector<Method> all = {Method::kTopK, Method::kVAttention,
                                          Method::kAdaptiveDenominator, Method::kQuest};
  return all;
}

bool drawsForGroup(const MethodOptions& options) {
  return options.group_draws && contains(groupDrawingMethods(), options.method);
}

bool choosesForGroup(const MethodOptions& options) {
  return options.group_choice && contains(groupChoosingMethods(), options.method);
}

bool drawsByWeight(ChosenBy by) {
  return by == ChosenBy::kSystematic || by == ChosenBy::kStratified ||
         by == ChosenBy::kIndependent || by == ChosenBy::kTiles;
}

bool exactFromAllKeys(const MethodOptions& options) {
  return !options.never_exact || !drawsByWeight(traitsOf(valueStage(options)).chosen_by);
}

int tileKeys(const MethodOptions& options, int n) {
  if (!options.tiles_by_length) return static_cast<int>(options.tile_size);
  return n <= 1536 ? 32 : n <= 3072 ? 64 : 256;
}

int sinkKeys(const MethodOptions& options, int n) {
  return countOrShare(options.sink, options.sink_share, n);
}
int localKeys(const MethodOptions& options, int n) {
  return countOrShare(options.local, options.local_share, n);
}

int shadowBits(const MethodOptions& options) {
  const ScoredBy by = traitsOf(options.method).scored_by;
  const bool reads = by == ScoredBy::kShadow || by == ScoredBy::kEither;
  return reads ? static_cast<int>(options.scores) : 0;
}

bool choosesBlocks(const MethodOptions& options) {
  return makesLists(options) || traitsOf(options.method).prompts == Prompts::kSkipping;
}

bool readsByBlocks(const MethodOptions& options) {
  return choosesBlocks(options) || traitsOf(options.method).prompts == Prompts::kAllKeys;
}

bool makesLists(const MethodOptions& options) {
  return traitsOf(options.method).prompts == Prompts::kLists;
}

bool hasHeadThresholds(const MethodOptions& options) {
  return makesLists(options) && traitsOf(options.method).chosen_by == ChosenBy::kThreshold;
}

float skipThreshold(const MethodOptions& options) {
  const bool skips = traitsOf(options.method).prompts == Prompts::kSkipping;
  return skips ? static_cast<float>(options.threshold) : 0;
}

int queryBlockOf(const MethodOptions& options) {
  return traitsOf(options.method).key_block == kBlockParameter ? static_cast<int>(options.block)
                                                               : 64;
}

int keyBlockOf(const MethodOptions& options) {
  const int block = traitsOf(options.method).key_block;
  if (block == kBlockParameter) return static_cast<int>(options.block);
  return block > 0 ? block : 64;
}

int selectionPositions(const MethodOptions& options, int chunk) {
  const bool own = traitsOf(options.method).chosen_by == ChosenBy::kColumnsAndSlashes;
  return own ? static_cast<int>(options.chunk) : chunk;
}

bool readsBounds(const MethodOptions& options) {
  return traitsOf(options.method).scored_by == ScoredBy::kBounds;
}

bool hasErrorTarget(const MethodOptions& options) {
  return traitsOf(options.method).chosen_by == ChosenBy::kAdaptive;
}

std::optional<std::string> gpuUnsupported(const MethodOptions& options, Phase phase) {
  const MethodTraits& method = traitsOf(options.method);
  if (!includes(method.gpu, phase)) {
    const bool prefill = phase == Phase::kPrefill;
    const auto names =
        prefill ? namesWhere([](const MethodTraits& m) { return includes(m.gpu, Phase::kPrefill); })
                : namesWhere([](const MethodTraits& m) { return includes(m.gpu, Phase::kDecode); });
    return std::string("the GPU does not ") + (prefill ? "read prompts by " : "decode ") +
           std::string(method.name) + ": it has " + joined(names);
  }
  for (const GpuLimit& limit : gpuLimits()) {
    if (limit.method != options.method) continue;
    const std::string value = parameterOf(limit.method, limit.key).write(options);
    if (limit.holds ? limit.holds(options) : contains(limit.values, std::string_view(value))) {
      continue;
    }
    return "the GPU's " + std::string(method.name) + " takes " + std::string(limit.key) + "=" +
           joined(limit.values) + ", not " + value;
  }
  return std::nullopt;
}

std::vector<ParameterInfo> methodParameterTable() {
  std::vector<ParameterInfo> table;
  for (const Parameter& parameter : methodParameters()) {
    table.push_back({std::string(parameter.key), namesOf(parameter.methods),
                     std::string(parameter.write(methodDefaults(parameter.methods.front()))),
                     std::string(parameter.allowed), std::string(parameter.meaning)});
  }
  return table;
}

std::string methodParametersMarkdown() {
  std::string table =
      "| parameter | of | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const ParameterInfo& parameter : methodParameterTable()) {
    table.append("| `").append(parameter.key).append("` | ").append(parameter.methods);
    table.append(" | `").append(parameter.default_value).append("` | ");
    table.append(parameter.allowed).append(" | ").append(parameter.meaning).append(" |\n");
  }
  return table;
}

}  // namespace allot::kernels
