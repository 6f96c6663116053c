#pragma once
// Reading single values of an experiment file: a value of the YAML tree, by the rule of its key,
// into the field of a message, or one sentence that names file, key, value and what is allowed.
//
// Part of core/spec: spec.cpp reads spec with it, cluster_section.cpp spec.cluster. Pure functions,
// any thread.
#include <string>

#include "core/result.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"

namespace allot {

// Where a value stands, for messages.
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

// " (did you mean x?)"; "" of "".
std::string didYouMean(const std::string& candidate);
// A value for messages: "\"text\"", "a list".
std::string described(const YamlValue& value);
// `wanted`: "an integer", "a list".
tl::unexpected<Error> wrongType(const Site& site, const YamlValue& value, const char* wanted);

// Sets `target`, which is unset, to the value.
Status readField(const SpecRule& rule, const YamlValue& value, const Site& site,
                 const SpecField& target);

// The value at a dotted path; null if a key on the way is missing.
const YamlValue* findPath(const YamlValue& root, const std::string& path);

}  // namespace allot
