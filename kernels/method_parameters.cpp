#include "kernels/method_parameters.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace allot::kernels {
namespace {

std::vector<Method> methodsWhere(bool (*holds)(const MethodTraits&)) {
  std::vector<Method> methods;
  for (const MethodTraits& method : methodTable()) {
    if (holds(method)) methods.push_back(method.method);
  }
  return methods;
}

// Returns the value stages that can stand behind Bernoulli's scores.
std::vector<Method> valueStages() {
  return methodsWhere([](const MethodTraits& m) {
    return m.needs == Needs::kScores && includes(m.phases, Phase::kDecode);
  });
}

// Returns the methods that draw by weight, and bernoulli, whose value stage may be one of them.
std::vector<Method> drawingMethods() {
  return methodsWhere([](const MethodTraits& m) {
    return drawsByWeight(m.chosen_by) || m.chosen_by == ChosenBy::kOfValues;
  });
}

// Returns the shortest decimal that reads back as the same number.
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

// Reads a whole number as a count of keys, any other as a share of the row's keys.
bool readKeys(std::string_view text, uint32_t* count, double* share) {
  uint32_t whole = 0;
  if (!readInteger(text, 0, 65536, &whole)) return readNumber(text, 1e-4, 0.9, share);
  *count = whole;
  return true;
}

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

std::string bitsText(const MethodOptions& o) { return std::to_string(static_cast<int>(o.scores)); }

std::string scoresText(const MethodOptions& o) {
  return o.scores == KeyScores::kExact ? "exact" : "q" + bitsText(o);
}

constexpr std::string_view kWeights[] = {"self", "exact", "centred"};

bool readWeights(std::string_view text, MethodOptions* o) {
  const auto found = std::find(std::begin(kWeights), std::end(kWeights), text);
  o->weights = static_cast<Weights>(found - std::begin(kWeights));
  return found != std::end(kWeights);
}

std::string weightsText(const MethodOptions& o) {
  return std::string(kWeights[static_cast<size_t>(o.weights)]);
}

bool readValues(std::string_view text, MethodOptions* o) {
  for (const Method method : valueStages()) {
    if (methodName(method) != text) continue;
    o->values = method;
    return true;
  }
  return false;
}

using Methods = std::vector<Method>;

// The functions below make parameters that set one field.

// Makes a parameter of two words; the field is true for the second.
Parameter choice(const char* key, Methods methods, const char* no, const char* yes,
                 const char* meaning, bool MethodOptions::*field) {
  return {key,
          std::move(methods),
          std::string(no) + ", " + yes,
          meaning,
          [=](std::string_view t, MethodOptions* o) { return (o->*field = t == yes) || t == no; },
          [=](const MethodOptions& o) { return std::string(o.*field ? yes : no); }};
}

Parameter integer(const char* key, Methods methods, const char* allowed, const char* meaning,
                  uint32_t low, uint32_t high, uint32_t MethodOptions::*field) {
  return {
      key,
      std::move(methods),
      allowed,
      meaning,
      [=](std::string_view t, MethodOptions* o) { return readInteger(t, low, high, &(o->*field)); },
      [=](const MethodOptions& o) { return std::to_string(o.*field); }};
}

Parameter number(const char* key, Methods methods, const char* allowed, const char* meaning,
                 double low, double high, double MethodOptions::*field) {
  return {
      key,
      std::move(methods),
      allowed,
      meaning,
      [=](std::string_view t, MethodOptions* o) { return readNumber(t, low, high, &(o->*field)); },
      [=](const MethodOptions& o) { return decimal(o.*field); }};
}

// Makes a parameter of 16, 32 or 64 positions.
Parameter positions(const char* key, Methods methods, const char* meaning,
                    uint32_t MethodOptions::*field) {
  Parameter parameter = integer(key, std::move(methods), "16, 32, 64", meaning, 16, 64, field);
  parameter.read = [=](std::string_view t, MethodOptions* o) {
    return (t == "16" || t == "32" || t == "64") && readInteger(t, 16, 64, &(o->*field));
  };
  return parameter;
}

// Makes a parameter of keys that are always read.
Parameter fixedKeys(const char* key, Methods methods, const char* meaning,
                    uint32_t MethodOptions::*count, double MethodOptions::*share) {
  return {
      key,
      std::move(methods),
      "0..65536, 0.0001..0.9",
      meaning,
      [=](std::string_view t, MethodOptions* o) { return readKeys(t, &(o->*count), &(o->*share)); },
      [=](const MethodOptions& o) {
        return o.*share > 0 ? decimal(o.*share) : std::to_string(o.*count);
      }};
}

std::vector<Parameter> makeParameters() {
  using O = MethodOptions;
  const Methods tiled = {Method::kS2antaProp, Method::kS2antaFlash}, q4 = {Method::kS2antaQ4};
  const Methods &grouped = groupDrawingMethods(), &choosing = groupChoosingMethods();
  Methods weighted = grouped;
  weighted.push_back(Method::kSampledRows);
  const Methods bernoulli = {Method::kBernoulli}, vattention = {Method::kVAttention};
  const Methods quest = {Method::kQuest}, sale = {Method::kSale};
  const Methods sampled = {Method::kSampleAttention};
  const Methods ranked =
      methodsWhere([](const MethodTraits& m) { return m.scored_by == ScoredBy::kEither; });
  const Methods adaptive =
      methodsWhere([](const MethodTraits& m) { return m.chosen_by == ChosenBy::kAdaptive; });
  return {
      {"tileSize", tiled, "16..65536, auto",
       "keys in one tile; auto: 32 in rows of up to 1536 keys, 64 up to 3072, 256 in longer "
       "ones, as the authors' kernels have them",
       [](std::string_view t, O* o) {
         o->tiles_by_length = t == "auto";
         return o->tiles_by_length || readInteger(t, 16, 65536, &o->tile_size);
       },
       [](const O& o) {
         return o.tiles_by_length ? std::string("auto") : std::to_string(o.tile_size);
       }},
      choice("rounding", {Method::kS2antaProp}, "systematic", "largest-remainder",
             "how a tile's share of S becomes draws: by one offset for all tiles, or rounded down, "
             "and up where the remainder is largest, as in the paper (biased)",
             &O::largest_remainder),
      {"bits", q4, "3, 4, 8", "bits a channel of the keys that draws are proposed from",
       [](std::string_view t, O* o) {
         return (t == "3" || t == "4" || t == "8") && readScores("q" + std::string(t), o);
       },
       bitsText},
      choice("draws", grouped, "head", "group",
             "each query head draws for itself, as in the papers, or all heads of a KV head share "
             "the rows of one draw, with a bias of order 1/S unless weights=exact or centred",
             &O::group_draws),
      choice("proposal", grouped, "attention", "attention-norm",
             "draws for groups are from the mean of the heads' attentions, or, in part, from the "
             "attention times the norm of the value",
             &O::norm_proposal),
      {"weights", weighted, "self, exact, centred",
       "divide weights by their sum, or leave them, or give the mean value what they lack of 1. "
       "Other than self for s2anta-q4 reads every key, for other decode methods needs draws=group, "
       "and for sampled-rows needs scores=exact",
       readWeights, weightsText},
      {"scores", ranked, "exact, q3, q4, q8", "what the heaviest keys are found by", readScores,
       scoresText},

      choice("choose", choosing, "head", "group",
             "each query head chooses its own keys, or all heads of a KV head share one choice, by "
             "the mean of their attentions and as large as their budgets together",
             &O::group_choice),

      integer("featureSamples", bernoulli, "1..65536", "ternary draws a query feature", 1, 65536,
              &O::feature_samples),
      {"meanGroupQuery", bernoulli, "true, false",
       "one set of features for all query heads of a KV head",
       [](std::string_view t, O* o) { return (o->mean_group_query = t == "true") || t == "false"; },
       [](const O& o) { return std::string(o.mean_group_query ? "true" : "false"); }},
      choice("features", bernoulli, "stratified", "iid", "how the draws of a feature are spread",
             &O::iid_features),
      {"values", bernoulli, namesOf(valueStages()), "the value stage behind these scores",
       readValues, [](const O& o) { return std::string(methodName(o.values)); }},

      choice(
          "exactAbove", drawingMethods(), "keys", "never",
          "keys: a budget of at least as many draws as keys is exact attention; never: draws are "
          "made there, too, as in the papers",
          &O::never_exact),

      fixedKeys(
          "sink", adaptive,
          "first keys, always read: a count, or below 1 a share of the row's keys, rounded up",
          &O::sink, &O::sink_share),
      fixedKeys("local", adaptive,
                "last keys, always read: a count, or below 1 a share of the row's keys, rounded up",
                &O::local, &O::local_share),
      number("heavy", adaptive, "0..1", "share of the other keys that is read as the heaviest", 0,
             1, &O::heavy),
      number("pilot", adaptive, "0..1", "share of the rest that is sampled to estimate its spread",
             0, 1, &O::pilot),
      number("epsilon", adaptive, "0.0001..1", "relative error of a head's output", 1e-4, 1,
             &O::epsilon),
      number("delta", adaptive, "0.0001..0.9", "probability of a larger error", 1e-4, 0.9,
             &O::delta),
      integer("maxBudget", adaptive, "0..1000000", "most tail rows sampled a head; 0: no limit", 0,
              1000000, &O::max_budget),
      choice("split", vattention, "best", "half",
             "how numerator and denominator share delta: as the fewest rows need it, or in halves",
             &O::half_delta),
      choice("cancelling", vattention, "all", "estimate",
             "where values may cancel (the pilot cannot tell the numerator from 0): read all rows, "
             "or take the pilot's estimate, as the paper does",
             &O::trusts_numerator),

      positions("pageSize", quest, "keys in one page", &O::page_size),
      choice("newest", quest, "beside", "within",
             "the newest page is read beside the budget's pages, at least one, or is the first of "
             "them, and bounds count as float32",
             &O::newest_within),

      number("alphaColumn", sampled, ">0..1",
             "share of the sampled queries' attention that kept columns hold", 1e-6, 1,
             &O::alpha_column),
      number("alphaSlash", sampled, ">0..1", "share of it that kept slashes hold", 1e-6, 1,
             &O::alpha_slash),
      positions("block", sampled, "positions in a block, and queries that are sampled", &O::block),
      {"chunk", sampled, "64, 128, 256, ..., 4096", "positions that one selection is for",
       [](std::string_view t, O* o) {
         return readInteger(t, 64, 4096, &o->chunk) && (o->chunk & (o->chunk - 1)) == 0;
       },
       [](const O& o) { return std::to_string(o.chunk); }},
      {"tau", sale, "0..1, profile",
       "weight, relative to first and last blocks, from which a block is kept; below 0.00001: all; "
       "profile: each head's own, of spec.attention.prefillProfile",
       [](std::string_view t, O* o) {
         o->profile_tau = t == "profile";
         return o->profile_tau || readNumber(t, 0, 1, &o->tau);
       },
       [](const O& o) { return o.profile_tau ? std::string("profile") : decimal(o.tau); }},
      {"select", sale, "q4, exact", "blocks are chosen by scores in 4 bits, or by exact ones",
       [](std::string_view t, O* o) { return (t == "q4" || t == "exact") && readScores(t, o); },
       scoresText},
      integer("denseKeys", sale, "0..1000000", "rows of up to this many keys are read whole", 0,
              1000000, &O::dense_keys),
      number("threshold", {Method::kSkipSoftmax}, "0..0.5",
             "weight, relative to the largest score before, from which a block's values are read",
             0, 0.5, &O::threshold)};
}

}  // namespace

std::string namesOf(const std::vector<Method>& methods) {
  std::string names;
  for (const Method method : methods) {
    names.append(names.empty() ? "" : ", ").append(methodName(method));
  }
  return names;
}

const std::vector<Parameter>& methodParameters() {
  static const std::vector<Parameter> all = makeParameters();
  return all;
}

}  // namespace allot::kernels
