#pragma once
// Reads single values of an experiment file: from the YAML tree, by the rule of the key, into the
// field of a message. Errors are kUsage and name file and key. Part of core/spec; pure functions,
// any thread.
#include <string>

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

// Returns " (did you mean x?)" for candidate x; "" for "".
std::string didYouMean(const std::string& candidate);
// Returns a value for messages: "\"text\"", "a list".
std::string described(const YamlValue& value);
// Returns the error for a value that is not `wanted` ("an integer", "a list").
tl::unexpected<Error> wrongType(const Site& site, const YamlValue& value, const char* wanted);

// Sets `target` to the value.
// Requires: `target` is unset.
Status readField(const SpecRule& rule, const YamlValue& value, const Site& site,
                 const SpecField& target);

// Returns the value at a dotted path; null if a key of the path is missing.
const YamlValue* findPath(const YamlValue& root, const std::string& path);

}  // namespace allot
