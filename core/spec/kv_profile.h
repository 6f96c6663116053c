#pragma once
// KvProfile: the scales of eight-bit keys and values, as `allot calibrate kv` finds them. They take
// the place of the checkpoint's. A profile file has more keys, for people. The stored experiment
// has the keys that workers need as one line of JSON. Pure functions, any thread.
#include <string>

#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/spec/profile_file.h"

namespace allot {

inline constexpr ProfileKind kKvProfile = {"spec.model.kvProfile", "kv", "kv-profile", "KV heads"};

struct KvProfile {
  std::string weights_sha256;  // of the calibrated model, in hex; empty: no profile
  LayerNumbers keys, values;   // [layers][kv_heads] scales: a number is code * scale

  bool operator==(const KvProfile&) const = default;
};

// Parses a file or the line of a stored experiment. Scales are floats above 0.
Result<KvProfile> parseKvProfile(const std::string& json, const std::string& place);

// Returns the line of JSON that parses to the profile. Equal profiles have equal text.
std::string kvProfileText(const KvProfile& profile);

// Replaces a profile that stands in spec.model.kvProfile by its text. Does nothing if the key is
// empty or holds a path. kUsage if the profile is malformed.
Status readOwnKvProfile(v1::Spec& spec, const std::string& place);

// Returns the profile of a stored experiment, empty if it has none. kUsage if the key holds a path
// or a malformed profile.
Result<KvProfile> kvProfileOf(const v1::Spec& spec);

// Returns kUsage if the profile, unless it is empty, is for another number of layers or KV heads.
Status checkKvProfile(const KvProfile& profile, int64_t layers, int64_t kv_heads);
// Returns kUsage if the profile, unless it is empty, is of another model.
Status checkKvProfile(const KvProfile& profile, const std::string& weights_sha256);

}  // namespace allot
