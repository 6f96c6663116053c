#include "kernels/method_parameters.h"

#include <charconv>
#include <iterator>
#include <utility>

namespace allot::kernels {
namespace {

const std::vector<Method> kTiled = {Method::kS2antaProp, Method::kS2antaFlash};

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

// Returns the methods that draw by weight, and those that have such a method behind them.
std::vector<Method> drawingMethods() {
  return methodsWhere([](const MethodTraits& m) {
    return drawsByWeight(m.chosen_by) || m.chosen_by == ChosenBy::kOfValues;
  });
}

std::string namesOf(const std::vector<Method>& methods) {
  std::string names;
  for (const Method method : methods) {
    names.append(names.empty() ? "" : ", ").append(methodName(method));
  }
  return names;
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

std::string keys(uint32_t count, double share) {
  return share > 0 ? decimal(share) : std::to_string(count);
}

bool readBool(std::string_view text, bool* value) {
  *value = text == "true";
  return *value || text == "false";
}

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
  for (const Method method : valueStages()) {
    if (methodName(method) != text) continue;
    o->values = method;
    return true;
  }
  return false;
}

std::vector<Parameter> tileParameters() {
  const std::vector<Method> ranked =
      methodsWhere([](const MethodTraits& m) { return m.scored_by == ScoredBy::kEither; });
  return {{"tileSize", kTiled, "16..65536, auto",
           "keys in one tile; auto: 32 in rows of up to 1536 keys, 64 up to 3072, 256 in longer "
           "ones, as the authors' kernels have them",
           [](std::string_view t, MethodOptions* o) {
             o->tiles_by_length = t == "auto";
             return o->tiles_by_length || readInteger(t, 16, 65536, &o->tile_size);
           },
           [](const MethodOptions& o) {
             return o.tiles_by_length ? std::string("auto") : std::to_string(o.tile_size);
           }},
          {"rounding",
           {Method::kS2antaProp},
           "systematic, largest-remainder",
           "how a tile's share of S becomes draws: by one offset for all tiles, or rounded down, "
           "and up where the remainder is largest, as in the paper (biased)",
           [](std::string_view t, MethodOptions* o) {
             o->largest_remainder = t == "largest-remainder";
             return o->largest_remainder || t == "systematic";
           },
           [](const MethodOptions& o) {
             return std::string(o.largest_remainder ? "largest-remainder" : "systematic");
           }},
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
          {"scores", ranked, "exact, q3, q4, q8", "what the heaviest keys are found by", readScores,
           [](const MethodOptions& o) {
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
      {"values", only, namesOf(valueStages()), "the value stage behind these scores", readValues,
       [](const MethodOptions& o) { return std::string(methodName(o.values)); }}};
}

std::vector<Parameter> drawParameters() {
  return {{"exactAbove", drawingMethods(), "keys, never",
           "keys: a budget of at least as many draws as keys is exact attention; never: draws are "
           "made there, too, as in the papers",
           [](std::string_view t, MethodOptions* o) {
             o->never_exact = t == "never";
             return o->never_exact || t == "keys";
           },
           [](const MethodOptions& o) { return std::string(o.never_exact ? "never" : "keys"); }}};
}

std::vector<Parameter> adaptiveParameters() {
  const std::vector<Method> adaptive =
      methodsWhere([](const MethodTraits& m) { return m.chosen_by == ChosenBy::kAdaptive; });
  return {
      {"sink", adaptive, "0..65536, 0.0001..0.9",
       "first keys, always read: a count, or below 1 a share of the row's keys, rounded up",
       [](std::string_view t, MethodOptions* o) { return readKeys(t, &o->sink, &o->sink_share); },
       [](const MethodOptions& o) { return keys(o.sink, o.sink_share); }},
      {"local", adaptive, "0..65536, 0.0001..0.9",
       "last keys, always read: a count, or below 1 a share of the row's keys, rounded up",
       [](std::string_view t, MethodOptions* o) { return readKeys(t, &o->local, &o->local_share); },
       [](const MethodOptions& o) { return keys(o.local, o.local_share); }},
      {"heavy", adaptive, "0..1", "share of the other keys that is read as the heaviest",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 0, 1, &o->heavy); },
       [](const MethodOptions& o) { return decimal(o.heavy); }},
      {"pilot", adaptive, "0..1", "share of the rest that is sampled to estimate its spread",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 0, 1, &o->pilot); },
       [](const MethodOptions& o) { return decimal(o.pilot); }},
      {"epsilon", adaptive, "0.0001..1", "relative error of a head's output",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 1e-4, 1, &o->epsilon); },
       [](const MethodOptions& o) { return decimal(o.epsilon); }},
      {"delta", adaptive, "0.0001..0.9", "probability of a larger error",
       [](std::string_view t, MethodOptions* o) { return readNumber(t, 1e-4, 0.9, &o->delta); },
       [](const MethodOptions& o) { return decimal(o.delta); }},
      {"maxBudget", adaptive, "0..1000000", "most tail rows sampled a head; 0: no limit",
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
      {"alphaColumn", sampled, ">0..1",
       "share of the sampled queries' attention that kept columns hold",
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
      {"denseKeys", sale, "0..1000000", "rows of up to this many keys are read whole",
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

}  // namespace

const std::vector<Parameter>& methodParameters() {
  static const std::vector<Parameter> all = [] {
    std::vector<Parameter> list;
    for (auto part :
         {tileParameters(), bernoulliParameters(), drawParameters(), adaptiveParameters(),
          vAttentionParameters(), questParameters(), blockParameters()}) {
      std::move(part.begin(), part.end(), std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

}  // namespace allot::kernels
