#pragma once
// The files of `allot calibrate`: JSON for people, with a key or a layer on each line. Pure
// functions and a value, any thread.
#include <cstdint>
#include <string>

#include "core/spec/profile_file.h"

namespace allot {

// Where a profile comes from.
struct ProfileFacts {
  std::string build = {};
  std::string weights_sha256 = {};
  std::string dataset_sha256 = {};
  std::string task = {};  // "recall: niah, multi"
  uint64_t context_tokens = 0;
  uint64_t prompts = 0;
  uint64_t seed = 0;
};

// The text of a profile's file.
class ProfileText {
 public:
  // Begins the text with the kind and the facts.
  ProfileText(const ProfileKind& kind, const ProfileFacts& facts);

  // Adds a member; `json` is its value. The other adds a text.
  void add(const std::string& key, const std::string& json);
  void addText(const std::string& key, const std::string& text);
  std::string whole() const { return text_ + "\n}\n"; }

 private:
  std::string text_;
};

}  // namespace allot
