#include "core/spec/prefill_profile.h"

#include <charconv>

#include "allot/kernels/method.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

// Returns a member of the profile. A profile is JSON, and is read as YAML because that
// reader refuses deep and huge texts.
Result<const YamlValue*> member(const YamlValue& profile, const std::string& key,
                                YamlValue::Kind kind, const std::string& place) {
  const YamlValue* value = profile.find(key);
  if (value == nullptr) {
    return badInput(place + ": is no profile of sale: it has no " + key +
                    "; make one with `allot calibrate sale`");
  }
  if (value->kind == kind) return value;
  return badInput(place + ": " + key +
                  (kind == YamlValue::Kind::kList ? " is no list" : " is no text or number"));
}

Status checkWord(const YamlValue& profile, const std::string& key, const std::string& wanted,
                 const std::string& place) {
  ALLOT_ASSIGN(const YamlValue* value, member(profile, key, YamlValue::Kind::kScalar, place));
  if (value->text == wanted) return {};
  return badInput(place + ": " + key + " is " + doubleQuoted(value->text) + ", and this build " +
                  "reads profiles with " + doubleQuoted(wanted));
}

Result<double> readTau(const YamlValue& value, const std::string& where) {
  double tau = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto parsed = std::from_chars(value.text.data(), end, tau);
  const bool number =
      value.kind == YamlValue::Kind::kScalar && parsed.ec == std::errc() && parsed.ptr == end;
  if (number && tau >= 0 && tau < 1) return tau + 0.0;  // -0 becomes 0
  return badInput(where + " = " +
                  (value.kind == YamlValue::Kind::kScalar ? escaped(value.text) : "a list") +
                  " is not a number from 0 to below 1");
}

Result<std::vector<std::vector<double>>> readTaus(const YamlValue& list, const std::string& place) {
  std::vector<std::vector<double>> taus;
  size_t heads = 0;
  for (const YamlValue& row : list.items) {
    const std::string where = place + ": tau[" + std::to_string(taus.size()) + "]";
    if (row.kind != YamlValue::Kind::kList || row.items.empty() ||
        row.items.size() != list.items.front().items.size()) {
      return badInput(where + " is not a list of a number for each head, as many as in tau[0]");
    }
    heads += row.items.size();
    if (heads > kMostProfileHeads) {
      return badInput(place + ": tau has more than " + std::to_string(kMostProfileHeads) +
                      " heads in all");
    }
    std::vector<double>& layer = taus.emplace_back();
    for (const YamlValue& item : row.items) {
      ALLOT_ASSIGN(const double tau,
                   readTau(item, where + "[" + std::to_string(layer.size()) + "]"));
      layer.push_back(tau);
    }
  }
  if (taus.empty()) return badInput(place + ": tau is empty; it needs a list for each layer");
  return taus;
}

bool wantsProfile(const std::string& text) {
  kernels::MethodOptions method;
  // Text that is no method is refused elsewhere.
  return !kernels::parseMethod(text, &method, kernels::Phase::kPrefill) && method.profile_tau;
}

}  // namespace

bool isProfileText(std::string_view text) { return text.starts_with("{"); }

Result<PrefillProfile> parseProfile(const std::string& json, const std::string& place) {
  if (json.size() > kMostProfileBytes) {
    return badInput(place + ": has more than " + std::to_string(kMostProfileBytes) + " bytes");
  }
  ALLOT_ASSIGN(const YamlValue value, parseYaml(json, place));
  if (value.kind != YamlValue::Kind::kMap) {
    return badInput(place + ": is no profile of sale; make one with `allot calibrate sale`");
  }
  ALLOT_TRY(checkWord(value, "kind", kProfileKind, place));
  ALLOT_TRY(checkWord(value, "queryBlock", std::to_string(kProfileQueryBlock), place));
  ALLOT_TRY(checkWord(value, "keyBlock", std::to_string(kProfileKeyBlock), place));
  PrefillProfile profile;
  ALLOT_ASSIGN(const YamlValue* digest,
               member(value, "weightsSha256", YamlValue::Kind::kScalar, place));
  profile.weights_sha256 = digest->text;
  if (profile.weights_sha256.size() != 64 ||
      profile.weights_sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return badInput(place + ": weightsSha256 is " + doubleQuoted(digest->text) +
                    ", which is no SHA-256 of 64 digits");
  }
  ALLOT_ASSIGN(const YamlValue* tau, member(value, "tau", YamlValue::Kind::kList, place));
  ALLOT_ASSIGN(profile.tau, readTaus(*tau, place));
  if (profileText(profile).size() > kMostProfileText) {
    return badInput(place + ": tau takes more than " + std::to_string(kMostProfileText) +
                    " bytes: write it with fewer digits");
  }
  return profile;
}

std::string profileText(const PrefillProfile& profile) {
  std::string text = std::string(R"({"kind": ")") + kProfileKind + R"(", "weightsSha256": ")" +
                     profile.weights_sha256 + R"(", "queryBlock": )" +
                     std::to_string(kProfileQueryBlock) + R"(, "keyBlock": )" +
                     std::to_string(kProfileKeyBlock) + R"(, "tau": [)";
  for (size_t l = 0; l < profile.tau.size(); ++l) {
    text += l == 0 ? "[" : ",[";
    for (size_t h = 0; h < profile.tau[l].size(); ++h) {
      char digits[32];
      const auto end = std::to_chars(digits, digits + sizeof digits, profile.tau[l][h]);
      text.append(h == 0 ? "" : ",").append(digits, end.ptr);
    }
    text += "]";
  }
  return text + "]}";
}

Status readOwnProfile(v1::Spec& spec, const std::string& place) {
  std::string& text = *spec.mutable_attention()->mutable_prefill_profile();
  if (!isProfileText(text)) return {};
  ALLOT_ASSIGN(const PrefillProfile profile, parseProfile(text, place + ": " + kProfileKey));
  text = profileText(profile);
  return {};
}

std::string profileUser(const v1::Spec& spec) {
  if (wantsProfile(spec.attention().prefill())) return "spec.attention.prefill";
  for (int i = 0; i < spec.evaluation().prefills_size(); ++i) {
    if (wantsProfile(spec.evaluation().prefills(i))) {
      return "spec.evaluation.prefills[" + std::to_string(i) + "]";
    }
  }
  return "";
}

Result<PrefillProfile> profileOf(const v1::Spec& spec) {
  const std::string& text = spec.attention().prefill_profile();
  if (text.empty()) {
    const std::string user = profileUser(spec);
    if (user.empty()) return PrefillProfile();
    return badInput(user + ": tau=profile, but " + kProfileKey + " names no profile");
  }
  if (!isProfileText(text)) {
    return badInput(std::string(kProfileKey) + ": " + escaped(text) +
                    " was not read when the experiment was stored");
  }
  return parseProfile(text, kProfileKey);
}

Status checkProfile(const PrefillProfile& profile, int64_t layers, int64_t heads) {
  if (profile.tau.empty()) return {};
  const auto of = [](size_t layer_count, size_t head_count) {
    return std::to_string(layer_count) + " layers of " + std::to_string(head_count) + " heads";
  };
  const size_t own_layers = profile.tau.size(), own_heads = profile.tau.front().size();
  if (static_cast<int64_t>(own_layers) == layers && static_cast<int64_t>(own_heads) == heads) {
    return {};
  }
  return badInput(std::string(kProfileKey) + ": the profile is for " + of(own_layers, own_heads) +
                  ", and the model has " +
                  of(static_cast<size_t>(layers), static_cast<size_t>(heads)) +
                  ": make its own with `allot calibrate sale`");
}

Status checkProfile(const PrefillProfile& profile, const std::string& weights_sha256) {
  if (profile.tau.empty() || profile.weights_sha256 == weights_sha256) return {};
  return badInput(std::string(kProfileKey) + ": the profile is of another model (" +
                  profile.weights_sha256.substr(0, 12) + ") than this one (" +
                  weights_sha256.substr(0, 12) + "): make its own with `allot calibrate sale`");
}

}  // namespace allot
