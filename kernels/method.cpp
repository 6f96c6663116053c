#include "allot/kernels/method.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace allot::kernels {
namespace {

// clang-format off
#define ALLOT_TRAITS(enumerator, name, phases, scored_by, chosen_by, promise, gpu, select, reads) \
  {Method::enumerator, name, Phases::phases, ScoredBy::scored_by, ChosenBy::chosen_by, \
   Promise::promise, Phases::gpu, reads},
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

std::vector<Method> methodsWhere(bool (*holds)(const MethodTraits&)) {
  std::vector<Method> methods;
  for (const MethodTraits& method : kTable) {
    if (holds(method)) methods.push_back(method.method);
  }
  return methods;
}

// Value stages that work from scores alone, and so behind Bernoulli scores, too.
const std::vector<Method> kValueStages = {
    Method::kDense,      Method::kSanta,       Method::kS2antaStrat, Method::kS2antaSys,
    Method::kS2antaProp, Method::kS2antaFlash, Method::kTopK};
const std::vector<Method> kTiled = {Method::kS2antaProp, Method::kS2antaFlash};
const std::vector<Method> kAdaptive =
    methodsWhere([](const MethodTraits& m) { return m.chosen_by == ChosenBy::kAdaptive; });
const std::vector<Method> kRanked =
    methodsWhere([](const MethodTraits& m) { return m.scored_by == ScoredBy::kEither; });

template <typename T>
bool contains(const std::vector<T>& list, const T& one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

std::string joined(const std::vector<Method>& methods) {
  std::vector<std::string_view> names;
  for (const Method method : methods) names.push_back(methodName(method));
  return joined(names);
}

// The shortest decimal that reads back as the same number.
std::string decimal(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

bool readInteger(std::string_view text, uint32_t low, uint32_t high, uint32_t* value) {
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end && *value >= low && *value <= high;
}

bool readNumber(std::string_view text, double low, double high, double* value) {
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end && *value >= low && *value <= high;
}

bool readBool(std::string_view text, bool* value) {
  *value = text == "true";
  return *value || text == "false";
}

// One parameter: who takes it, how it is read and written. `read` returns false for a bad value.
struct Parameter {
  std::string_view key;
  std::vector<Method> methods;
  std::string_view allowed;
  std::string_view meaning;
  bool (*read)(std::string_view text, MethodOptions* options);
  std::string (*write)(const MethodOptions& options);
};

std::string truth(bool value) { return value ? "true" : "false"; }

bool readScores(std::string_view text, MethodOptions* o) {
  for (const auto& [name, scores] : {std::pair{"exact", KeyScores::kExact},
                                     {"q3", KeyScores::kQ3},
                                     {"q4", KeyScores::kQ4},
                                     {"q8", KeyScores::kQ8}}) {
    if (text != name) continue;
    o->scores = scores;
    return true;
  }
  return false;
}

bool readBits(std::string_view text, MethodOptions* o) {
  return (text == "3" || text == "4" || text == "8") && readScores("q" + std::string(text), o);
}

bool readValues(std::string_view text, MethodOptions* o) {
  for (const Method method : kValueStages) {
    if (methodName(method) != text) continue;
    o->values = method;
    return true;
  }
  return false;
}

std::vector<Parameter> tileParameters() {
  return {{"tileSize", kTiled, "16..65536", "keys in one tile",
           [](std::string_view t, MethodOptions* o) {
             return readInteger(t, 16, 65536, &o->tile_size);
           },
           [](const MethodOptions& o) { return std::to_string(o.tile_size); }},
          {"bits",
           {Method::kS2antaQ4},
           "3, 4, 8",
           "bits a channel of the keys that draws are proposed from",
           readBits,
           [](const MethodOptions& o) { return std::to_string(static_cast<int>(o.scores)); }},
          {"weights",
           {Method::kS2antaQ4},
           "self, exact",
           "divide by the sum of the drawn weights, or by the exact normaliser (for analysis: "
           "reads every key)",
           [](std::string_view t, MethodOptions* o) {
             o->exact_weights = t == "exact";
             return o->exact_weights || t == "self";
           },
           [](const MethodOptions& o) { return std::string(o.exact_weights ? "exact" : "self"); }},
          {"scores", kRanked, "exact, q3, q4, q8", "what the heaviest keys are found by",
           readScores, [](const MethodOptions& o) {
             return o.scores == KeyScores::kExact
                        ? std::string("exact")
                        : "q" + std::to_string(static_cast<int>(o.scores));
           }}};
}

std::vector<Parameter> bernoulliParameters() {
  const std::vector<Method> only = {Method::kBernoulli};
  return {
      {"featureSamples", only, "1..65536", "ternary draws a query feature",
       [](std::string_view t, MethodOptions* o) {
         return readInteger(t, 1, 65536, &o->feature_samples);
       },
       [](const MethodOptions& o) { return std::to_string(o.feature_samples); }},
      {"meanGroupQuery", only, "true, false",
       "one set of features for all query heads of a KV head",
       [](std::string_view t, MethodOptions* o) { return readBool(t, &o->mean_group_query); },
       [](const MethodOptions& o) { return truth(o.mean_group_query); }},
      {"features", only, "stratified, iid", "how the draws of a feature are spread",
       [](std::string_view t, MethodOptions* o) {
         o->iid_features = t == "iid";
         return o->iid_features || t == "stratified";
       },
       [](const MethodOptions& o) { return std::string(o.iid_features ? "iid" : "stratified"); }},
      {"values", only, "dense, santa, s2anta-strat, s2anta-sys, s2anta-prop, s2anta-flash, top-k",
       "the value stage behind these scores", readValues,
       [](const MethodOptions& o) { return std::string(methodName(o.values)); }}};
}

std::vector<Parameter> adaptiveParameters() {
  return {{"sink", kAdaptive, "0..65536", "first keys, always read",
           [](std::string_view t, MethodOptions* o) { return readInteger(t, 0, 65536, &o->sink); },
           [](const MethodOptions& o) { return std::to_string(o.sink); }},
          {"local", kAdaptive, "0..65536", "last keys, always read",
           [](std::string_view t, MethodOptions* o) { return readInteger(t, 0, 65536, &o->local); },
           [](const MethodOptions& o) { return std::to_string(o.local); }},
          {"heavy", kAdaptive, "0..1", "share of the other keys that is read as the heaviest",
           [](std::string_view t, MethodOptions* o) { return readNumber(t, 0, 1, &o->heavy); },
           [](const MethodOptions& o) { return decimal(o.heavy); }},
          {"pilot", kAdaptive, "0..1", "share of the rest that is sampled to estimate its spread",
           [](std::string_view t, MethodOptions* o) { return readNumber(t, 0, 1, &o->pilot); },
           [](const MethodOptions& o) { return decimal(o.pilot); }},
          {"epsilon", kAdaptive, "0.0001..1", "relative error of a head's output",
           [](std::string_view t, MethodOptions* o) { return readNumber(t, 1e-4, 1, &o->epsilon); },
           [](const MethodOptions& o) { return decimal(o.epsilon); }},
          {"delta", kAdaptive, "0.0001..0.9", "probability of a larger error",
           [](std::string_view t, MethodOptions* o) { return readNumber(t, 1e-4, 0.9, &o->delta); },
           [](const MethodOptions& o) { return decimal(o.delta); }},
          {"maxBudget", kAdaptive, "0..1000000", "most tail rows sampled a head; 0: no limit",
           [](std::string_view t, MethodOptions* o) {
             return readInteger(t, 0, 1000000, &o->max_budget);
           },
           [](const MethodOptions& o) { return std::to_string(o.max_budget); }}};
}

std::vector<Parameter> vAttentionParameters() {
  const std::vector<Method> only = {Method::kVAttention};
  return {
      {"split", only, "best, half",
       "how numerator and denominator share delta: as the fewest rows need it, or in halves",
       [](std::string_view t, MethodOptions* o) {
         o->half_delta = t == "half";
         return o->half_delta || t == "best";
       },
       [](const MethodOptions& o) { return std::string(o.half_delta ? "half" : "best"); }},
      {"cancelling", only, "all, estimate",
       "where values may cancel (the pilot cannot tell the numerator from 0): read all rows, or "
       "take the pilot's estimate, as the paper does",
       [](std::string_view t, MethodOptions* o) {
         o->trusts_numerator = t == "estimate";
         return o->trusts_numerator || t == "all";
       },
       [](const MethodOptions& o) {
         return std::string(o.trusts_numerator ? "estimate" : "all");
       }}};
}

std::vector<Parameter> questParameters() {
  const std::vector<Method> only = {Method::kQuest};
  return {
      {"pageSize", only, "16, 32, 64", "keys in one page",
       [](std::string_view t, MethodOptions* o) {
         return (t == "16" || t == "32" || t == "64") && readInteger(t, 16, 64, &o->page_size);
       },
       [](const MethodOptions& o) { return std::to_string(o.page_size); }},
      {"newest", only, "beside, within",
       "the newest page is read beside the budget's, of which there is at least one, or is the "
       "first of them, and bounds count as float32",
       [](std::string_view t, MethodOptions* o) {
         o->newest_within = t == "within";
         return o->newest_within || t == "beside";
       },
       [](const MethodOptions& o) { return std::string(o.newest_within ? "within" : "beside"); }}};
}

std::vector<Parameter> blockParameters() {
  const std::vector<Method> sampled = {Method::kSampleAttention}, sale = {Method::kSale};
  return {
      {"alphaColumn", sampled, ">0..1", "share of the sampled queries' mass that kept columns hold",
       [](std::string_view t, MethodOptions* o) {
         return readNumber(t, 1e-6, 1, &o->alpha_column);
       },
       [](const MethodOptions& o) { return decimal(o.alpha_column); }},
      {"alphaSlash", sampled, ">0..1", "share of it that kept slashes hold",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 1e-6, 1, &o->alpha_slash); },
       [](const MethodOptions& o) { return decimal(o.alpha_slash); }},
      {"block", sampled, "16, 32, 64", "positions in a block, and queries that are sampled",
       [](std::string_view t, MethodOptions* o) {
         return (t == "16" || t == "32" || t == "64") && readInteger(t, 16, 64, &o->block);
       },
       [](const MethodOptions& o) { return std::to_string(o.block); }},
      {"chunk", sampled, "64, 128, 256, ..., 4096", "positions that one selection is for",
       [](std::string_view t, MethodOptions* o) {
         return readInteger(t, 64, 4096, &o->chunk) && (o->chunk & (o->chunk - 1)) == 0;
       },
       [](const MethodOptions& o) { return std::to_string(o.chunk); }},
      {"tau", sale, "0..1, profile",
       "weight, relative to first and last blocks, from which a block is kept; below 0.00001: all; "
       "profile: each head's own, of spec.attention.prefillProfile",
       [](std::string_view t, MethodOptions* o) {
         o->profile_tau = t == "profile";
         return o->profile_tau || readNumber(t, 0, 1, &o->tau);
       },
       [](const MethodOptions& o) {
         return o.profile_tau ? std::string("profile") : decimal(o.tau);
       }},
      {"select", sale, "q4, exact", "blocks are chosen by scores in 4 bits, or by exact ones",
       [](std::string_view t, MethodOptions* o) {
         return (t == "q4" || t == "exact") && readScores(t, o);
       },
       [](const MethodOptions& o) {
         return std::string(o.scores == KeyScores::kExact ? "exact" : "q4");
       }},
      {"denseKeys", sale, "0..1000000", "so many keys are read whole",
       [](std::string_view t, MethodOptions* o) {
         return readInteger(t, 0, 1000000, &o->dense_keys);
       },
       [](const MethodOptions& o) { return std::to_string(o.dense_keys); }},
      {"threshold",
       {Method::kSkipSoftmax},
       "0..0.5",
       "weight, relative to the largest score before, from which a block's values are read",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 0, 0.5, &o->threshold); },
       [](const MethodOptions& o) { return decimal(o.threshold); }}};
}

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = [] {
    std::vector<Parameter> list;
    for (auto part : {tileParameters(), bernoulliParameters(), adaptiveParameters(),
                      vAttentionParameters(), questParameters(), blockParameters()}) {
      std::move(part.begin(), part.end(), std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

const Parameter& parameterOf(Method method, std::string_view key) {
  const auto& all = parameters();
  return *std::find_if(all.begin(), all.end(), [&](const Parameter& parameter) {
    return parameter.key == key && contains(parameter.methods, method);
  });
}

// Parameters of which the GPU's kernels have some values alone.
struct GpuLimit {
  Method method;
  std::string_view key;
  std::vector<std::string_view> values;
};
const std::vector<GpuLimit>& gpuLimits() {
  static const std::vector<GpuLimit> all = {
      {Method::kS2antaFlash, "tileSize", {"256"}},  // cuda::kPieceKeys
      {Method::kS2antaQ4, "bits", {"4"}},          {Method::kS2antaQ4, "weights", {"self"}},
      {Method::kSampleAttention, "block", {"64"}}, {Method::kSale, "select", {"q4"}},
      {Method::kTopK, "scores", {"exact", "q4"}},  {Method::kVAttention, "scores", {"exact", "q4"}},
  };
  return all;
}

MethodOptions defaultsOf(Method method, MethodDefaults defaults = MethodDefaults::kSecond) {
  MethodOptions options;
  options.method = method;
  if (method == Method::kS2antaQ4 || method == Method::kSale) options.scores = KeyScores::kQ4;
  if (defaults == MethodDefaults::kFirst) {
    options.half_delta = method == Method::kVAttention;
    options.newest_within = method == Method::kQuest;
  }
  return options;
}

std::optional<std::string> readParameter(std::string_view word, MethodOptions* options) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  std::vector<std::string_view> known;
  for (const Parameter& parameter : parameters()) {
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
    case Promise::kMassBound:
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

std::optional<std::string> parseMethod(std::string_view text, MethodOptions* options,
                                       MethodDefaults defaults, Phase phase) {
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
  MethodOptions parsed = defaultsOf(found->method, defaults);
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
  *options = parsed;
  return std::nullopt;
}

std::string methodText(const MethodOptions& options, MethodDefaults defaults) {
  const MethodOptions left_out = defaultsOf(options.method, defaults);
  std::string text(methodName(options.method));
  for (const Parameter& parameter : parameters()) {
    if (!contains(parameter.methods, options.method)) continue;
    const std::string value = parameter.write(options);
    if (value != parameter.write(left_out)) {
      text.append(" ").append(parameter.key).append("=").append(value);
    }
  }
  return text;
}

bool usesBudget(const MethodOptions& options) {
  const ChosenBy own = traitsOf(options.method).chosen_by;
  switch (own == ChosenBy::kOfValues ? traitsOf(options.values).chosen_by : own) {
    case ChosenBy::kAll:
    case ChosenBy::kAdaptive:
    case ChosenBy::kColumnsAndSlashes:
    case ChosenBy::kThreshold:
      return false;
    default:
      return true;
  }
}

int shadowBits(const MethodOptions& options) {
  const ScoredBy by = traitsOf(options.method).scored_by;
  const bool reads = by == ScoredBy::kShadow || by == ScoredBy::kEither;
  return reads ? static_cast<int>(options.scores) : 0;
}

bool choosesBlocks(const MethodOptions& options) {
  const ChosenBy by = traitsOf(options.method).chosen_by;
  return by == ChosenBy::kColumnsAndSlashes || by == ChosenBy::kThreshold;
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
    if (contains(limit.values, std::string_view(value))) continue;
    return "the GPU's " + std::string(method.name) + " takes " + std::string(limit.key) + "=" +
           joined(limit.values) + ", not " + value;
  }
  return std::nullopt;
}

std::string methodParametersMarkdown() {
  std::string table =
      "| parameter | of | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Parameter& parameter : parameters()) {
    table.append("| `").append(parameter.key).append("` | ").append(joined(parameter.methods));
    table.append(" | `").append(parameter.write(defaultsOf(parameter.methods.front())));
    table.append("` | ").append(parameter.allowed).append(" | ").append(parameter.meaning);
    table.append(" |\n");
  }
  return table;
}

}  // namespace allot::kernels
