#pragma once
// What the profiles of `allot calibrate` have in common: JSON with a kind, the digest of a model's
// weights, and lists of numbers by layer and head. Pure functions, any thread. Errors are kUsage,
// "PLACE: what is wrong".
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// Most bytes of a file, most bytes of the line in a stored experiment, and most heads of all
// layers. The largest open models have some 16,000 heads; the line has ten bytes for each.
inline constexpr size_t kMostProfileBytes = size_t{1} << 20;
inline constexpr size_t kMostProfileText = size_t{1} << 18;
inline constexpr size_t kMostProfileHeads = 32768;

// Returns true if the text begins as a profile does, with '{'; else it is a path.
inline bool isProfileText(std::string_view text) { return text.starts_with("{"); }

// One kind of profile, for refusals.
struct ProfileKind {
  const char* key;    // of the experiment
  const char* name;   // `allot calibrate NAME` makes it
  const char* kind;   // its member `kind`
  const char* heads;  // what a list has one number for
};

using LayerNumbers = std::vector<std::vector<double>>;  // [layers][heads]

// A profile that is read.
class ProfileFile {
 public:
  // `kind` outlives the result.
  static Result<ProfileFile> parse(const std::string& json, const ProfileKind& kind,
                                   const std::string& place);

  // Refuses another value of the member than `wanted`.
  Status checkWord(const std::string& member, const std::string& wanted) const;
  // Returns weightsSha256.
  Result<std::string> digest() const;
  // Returns the member's numbers. Refuses those that accepts() does not, "is not `what`".
  Result<LayerNumbers> numbers(const std::string& member, bool (*accepts)(double),
                               const std::string& what) const;

 private:
  ProfileFile(const ProfileKind& kind, std::string place, YamlValue root)
      : kind_(&kind), place_(std::move(place)), root_(std::move(root)) {}
  Result<const YamlValue*> find(const std::string& member, YamlValue::Kind wanted) const;

  const ProfileKind* kind_;
  std::string place_;
  YamlValue root_;
};

// Returns the numbers as JSON, each in the fewest digits that read back.
std::string numbersText(const LayerNumbers& numbers);

// Return kUsage, with the experiment's key, if a profile with these numbers is for another number
// of layers or heads, or if one with this digest is of another model.
Status checkProfileShape(const ProfileKind& kind, const LayerNumbers& numbers, int64_t layers,
                         int64_t heads);
Status checkProfileModel(const ProfileKind& kind, const std::string& own,
                         const std::string& weights_sha256);
// Returns the error of a stored experiment with the path of a profile instead of one.
tl::unexpected<Error> profileNotRead(const ProfileKind& kind, const std::string& text);

}  // namespace allot
