#include "core/spec/prefill_profile.h"

#include "allot/kernels/method.h"

namespace allot {
namespace {

bool wantsProfile(const std::string& text) {
  kernels::MethodOptions method;
  // Text that is no method is refused elsewhere.
  return !kernels::parseMethod(text, &method, kernels::Phase::kPrefill) && method.profile_tau;
}

}  // namespace

Result<PrefillProfile> parseProfile(const std::string& json, const std::string& place) {
  ALLOT_ASSIGN(const ProfileFile file, ProfileFile::parse(json, kSaleProfile, place));
  ALLOT_TRY(file.checkWord("queryBlock", std::to_string(kProfileQueryBlock)));
  ALLOT_TRY(file.checkWord("keyBlock", std::to_string(kProfileKeyBlock)));
  PrefillProfile profile;
  ALLOT_ASSIGN(profile.weights_sha256, file.digest());
  ALLOT_ASSIGN(profile.tau, file.numbers(
                                "tau", [](double tau) { return tau >= 0 && tau < 1; },
                                "a number from 0 to below 1"));
  if (profileText(profile).size() > kMostProfileText) {
    return badInput(place + ": tau takes more than " + std::to_string(kMostProfileText) +
                    " bytes: write it with fewer digits");
  }
  return profile;
}

std::string profileText(const PrefillProfile& profile) {
  return std::string(R"({"kind": ")") + kSaleProfile.kind + R"(", "weightsSha256": ")" +
         profile.weights_sha256 + R"(", "queryBlock": )" + std::to_string(kProfileQueryBlock) +
         R"(, "keyBlock": )" + std::to_string(kProfileKeyBlock) + R"(, "tau": )" +
         numbersText(profile.tau) + "}";
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
  if (!isProfileText(text)) return profileNotRead(kSaleProfile, text);
  return parseProfile(text, kProfileKey);
}

Status checkProfile(const PrefillProfile& profile, int64_t layers, int64_t heads) {
  return checkProfileShape(kSaleProfile, profile.tau, layers, heads);
}

Status checkProfile(const PrefillProfile& profile, const std::string& weights_sha256) {
  return checkProfileModel(kSaleProfile, profile.weights_sha256, weights_sha256);
}

}  // namespace allot
