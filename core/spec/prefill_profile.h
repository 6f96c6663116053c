#pragma once
// PrefillProfile: SALE's threshold of each head, as `allot calibrate sale` finds it. A profile file
// has more keys, for people (theta, prompts, each head's error). The stored experiment has the keys
// that workers need as one line of JSON. Pure functions, any thread.
#include <cstdint>
#include <string>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/profile_file.h"

namespace allot {

inline constexpr char kProfileKey[] = "spec.attention.prefillProfile";
inline constexpr ProfileKind kSaleProfile = {kProfileKey, "sale", "sale-profile", "heads"};
// Positions in SALE's blocks of queries and keys.
inline constexpr int kProfileQueryBlock = 64;
inline constexpr int kProfileKeyBlock = 32;

struct PrefillProfile {
  std::string weights_sha256;  // of the calibrated model, in hex
  LayerNumbers tau;            // [layers][heads], 0 <= tau < 1; empty: no profile

  bool operator==(const PrefillProfile&) const = default;
};

// Parses a file or the line of a stored experiment. Errors are kUsage, "PLACE: what is wrong".
Result<PrefillProfile> parseProfile(const std::string& json, const std::string& place);

// Returns the line of JSON that parses to the profile. Equal profiles have equal text.
std::string profileText(const PrefillProfile& profile);

// Replaces a profile that stands in spec.attention.prefillProfile by its profileText(). Does
// nothing if the key is empty or holds a path. kUsage if the profile is malformed.
Status readOwnProfile(v1::Spec& spec, const std::string& place);

// Returns the first key whose method reads prompts with tau=profile; "" if there is none.
std::string profileUser(const v1::Spec& spec);

// Returns the profile of a stored experiment, empty if it has none. kUsage if a method needs a
// missing profile, or the key holds a path or a malformed profile.
Result<PrefillProfile> profileOf(const v1::Spec& spec);

// Return kUsage if the profile, unless it is empty, is for another number of layers or heads, or of
// another model.
Status checkProfile(const PrefillProfile& profile, int64_t layers, int64_t heads);
Status checkProfile(const PrefillProfile& profile, const std::string& weights_sha256);

}  // namespace allot
