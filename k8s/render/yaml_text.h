#pragma once
// Kubernetes objects as YAML text, and back.
//
// Writing: two spaces, keys in alphabetical order, most texts of several lines as blocks. The text
// means the same in YAML 1.1 (kubectl) and 1.2. Reading: for the files of k8s/, which are compiled
// in. The reader tells quoted from plain values, which that of experiment files
// (core/spec/spec_yaml.h) need not, and trusts its input. Pure functions, any thread.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace allot {

// Returns one document, with a final line break.
std::string yamlText(const nlohmann::json& value);
// Returns several documents, each after "---".
std::string yamlText(const std::vector<nlohmann::json>& documents);

// Returns the documents of a text that are not empty. Throws YAML::Exception if the text is no
// YAML.
std::vector<nlohmann::json> yamlObjects(const std::string& text);

}  // namespace allot
