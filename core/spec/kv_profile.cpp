#include "core/spec/kv_profile.h"

#include <cmath>

namespace allot {

Result<KvProfile> parseKvProfile(const std::string& json, const std::string& place) {
  ALLOT_ASSIGN(const ProfileFile file, ProfileFile::parse(json, kKvProfile, place));
  KvProfile profile;
  ALLOT_ASSIGN(profile.weights_sha256, file.digest());
  const auto accepts = [](double scale) {
    return std::isnormal(static_cast<float>(scale)) && scale > 0;
  };
  const std::string what = "a scale: a float above 0";
  ALLOT_ASSIGN(profile.keys, file.numbers("keyScales", accepts, what));
  ALLOT_ASSIGN(profile.values, file.numbers("valueScales", accepts, what));
  if (profile.keys.size() != profile.values.size() ||
      profile.keys.front().size() != profile.values.front().size()) {
    return badInput(place + ": keyScales and valueScales differ in their layers or heads");
  }
  if (kvProfileText(profile).size() > kMostProfileText) {
    return badInput(place + ": the scales take more than " + std::to_string(kMostProfileText) +
                    " bytes: write them with fewer digits");
  }
  return profile;
}

std::string kvProfileText(const KvProfile& profile) {
  return std::string(R"({"kind": ")") + kKvProfile.kind + R"(", "weightsSha256": ")" +
         profile.weights_sha256 + R"(", "keyScales": )" + numbersText(profile.keys) +
         R"(, "valueScales": )" + numbersText(profile.values) + "}";
}

Status readOwnKvProfile(v1::Spec& spec, const std::string& place) {
  std::string& text = *spec.mutable_model()->mutable_kv_profile();
  if (!isProfileText(text)) return {};
  ALLOT_ASSIGN(const KvProfile profile, parseKvProfile(text, place + ": " + kKvProfile.key));
  text = kvProfileText(profile);
  return {};
}

Result<KvProfile> kvProfileOf(const v1::Spec& spec) {
  const std::string& text = spec.model().kv_profile();
  if (text.empty()) return KvProfile();
  if (!isProfileText(text)) return profileNotRead(kKvProfile, text);
  return parseKvProfile(text, kKvProfile.key);
}

Status checkKvProfile(const KvProfile& profile, int64_t layers, int64_t kv_heads) {
  return checkProfileShape(kKvProfile, profile.keys, layers, kv_heads);
}

Status checkKvProfile(const KvProfile& profile, const std::string& weights_sha256) {
  return checkProfileModel(kKvProfile, profile.weights_sha256, weights_sha256);
}

}  // namespace allot
