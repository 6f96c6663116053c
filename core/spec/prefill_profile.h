#pragma once
// A profile of a prefill: SALE's threshold of each head, as `allot calibrate sale` finds it.
//
// A file has what a person wants to know of it as well (theta, prompts, each head's error); what
// workers need travels in the stored experiment as one line of JSON with the same keys. Pure
// functions, any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

inline constexpr char kProfileKey[] = "spec.attention.prefillProfile";
inline constexpr char kProfileKind[] = "sale-profile";
// Of a file, and of the line in a stored experiment. The largest open models have some 16,000 heads
// in all, at ten bytes each.
inline constexpr size_t kMostProfileBytes = size_t{1} << 20;
inline constexpr size_t kMostProfileText = size_t{1} << 18;
inline constexpr size_t kMostProfileHeads = 32768;
// Positions in SALE's blocks of queries and keys.
inline constexpr int kProfileQueryBlock = 64;
inline constexpr int kProfileKeyBlock = 32;

struct PrefillProfile {
  std::string weights_sha256;            // of the model that it was made of
  std::vector<std::vector<double>> tau;  // [layers][heads], from 0 to below 1

  bool operator==(const PrefillProfile&) const = default;
};

// Whether it is a profile, and not the path of one.
bool isProfileText(std::string_view text);

// kUsage, "PLACE: what is wrong".
Result<PrefillProfile> parseProfile(const std::string& json, const std::string& place);

// One line that parses to it: equal profiles, equal text.
std::string profileText(const PrefillProfile& profile);

// A profile that stands in the file itself, as in what is stored, is written as profileText has it.
// kUsage if it is none.
Status readOwnProfile(v1::Spec& spec, const std::string& place);

// The first key by which prompts are read by a profile; "" if none is.
std::string profileUser(const v1::Spec& spec);

// The stored experiment's; without heads, where it has none. kUsage if what it holds is none.
Result<PrefillProfile> profileOf(const v1::Spec& spec);

// kUsage if a profile is for another number of layers or heads.
Status checkProfile(const PrefillProfile& profile, int64_t layers, int64_t heads);
// kUsage if it is of another model.
Status checkProfile(const PrefillProfile& profile, const std::string& weights_sha256);

}  // namespace allot
