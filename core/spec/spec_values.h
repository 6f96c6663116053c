#pragma once
// Reads single values of an experiment file: from the YAML tree, by the rule of the key, into the
// field of a message. Errors are kUsage and name file and key. Part of core/spec; pure functions,
// any thread.
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// The site of a value, for messages.
struct Site {
  std::string place;  // the file
  std::string path;   // "spec.task.tasks[1]"

  tl::unexpected<Error> refuse(const std::string& what) const {
    return badInput(place + ": " + path + ": " + what);
  }
  Site under(const std::string& key) const {
    return {place, path.empty() ? key : path + "." + key};
  }
  Site at(size_t index) const { return {place, path + "[" + std::to_string(index) + "]"}; }
};

// Collects the mistakes of one file, so that a person sees all of them at once.
class Mistakes {
 public:
  explicit Mistakes(std::string place) : place_(std::move(place)) {}

  // Keeps the error of `done`. Returns true if there is none. `doubtful`: the section of which
  // nothing more can be said; "": that of the key that the error names.
  bool pass(const Status& done, std::string doubtful = "");
  // Assigns the value of `read`, or keeps its error.
  template <typename T>
  bool pass(Result<T> read, T* value) {
    if (read) *value = std::move(*read);
    return pass(read ? Status() : tl::unexpected<Error>(read.error()));
  }
  // Keeps the error of a rule that joins keys, unless it names a section with a mistake.
  void passJoined(const Status& done);

  size_t count() const { return sentences_.size(); }
  bool full() const { return count() >= kMost; }
  // Returns the first kMost sentences in the order in which they were found, with the lines of
  // their keys, and one that says if there are more.
  std::vector<std::string> sentences(const YamlValue& root) const;

 private:
  static constexpr size_t kMost = 20;

  std::string place_;
  std::vector<std::string> sentences_;
  std::vector<std::string> doubtful_;  // sections, "spec.policy"
};

// Returns " (did you mean x?)"; "" for "".
std::string didYouMean(const std::string& candidate);
// Returns a value for messages: "\"text\"", "a list".
std::string described(const YamlValue& value);
// Returns the error for a value that is not `wanted` ("an integer", "a list").
tl::unexpected<Error> wrongType(const Site& site, const YamlValue& value, const char* wanted);

// Returns true for "15 %" and "15%": a budget as a share of dense attention's price.
bool isShare(const YamlValue& value);

// Returns the text of a scalar that Kubernetes takes for a text, too.
Result<std::string> readString(const YamlValue& value, const Site& site);

// Sets `target` to the value. Returns false, with `target` unset, if that made mistakes.
// Requires: `target` is unset.
bool readField(const SpecRule& rule, const YamlValue& value, const Site& site,
               const SpecField& target, Mistakes* mistakes);

// Returns the value at a dotted path; null if a key of the path is missing.
const YamlValue* findPath(const YamlValue& root, const std::string& path);

}  // namespace allot
