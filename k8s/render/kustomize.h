#pragma once
// What the kustomizations of k8s/base and k8s/components ask for, as kustomize does it.
//
// Of a kustomization: resources, components, generators, patches (strategic merge) and labels; of
// an overlay over it: a name prefix with all references to names, labels and selectors, names with
// digests.
// Pure functions, any thread; they trust the files, which are compiled in.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace allot {

using KubeObjects = std::vector<nlohmann::json>;
using TextMap = std::map<std::string, std::string>;

// Adds what the kustomization in `folder` of k8s/ ("base", "components/gpu") has, and changes what
// is there, if it is a component. Secrets are made without content.
void accumulate(const std::string& folder, KubeObjects* objects);

// labels with includeSelectors: into metadata, the pods' templates, and every selector that has
// labels.
void addLabels(const TextMap& labels, KubeObjects* objects);

// Before every name, and in what refers to one of these objects. What a generator made, and is to
// have its content's digest in its name, gets it.
void prefixNames(const std::string& prefix, KubeObjects* objects);

// A generated object keeps the name that its generator gives it.
void withoutDigest(nlohmann::json* object);

// The template of a Deployment's, StatefulSet's or Job's pods; null if it is none.
nlohmann::json* podTemplateOf(nlohmann::json* object);

// A strategic merge patch: lists of named things are merged by name, `key` is the field's own.
void mergeInto(nlohmann::json* value, const nlohmann::json& patch, const std::string& key = "");

// "6ct58987ht": of a ConfigMap or Secret.
std::string contentDigest(const nlohmann::json& object);

std::string toBase64(const std::string& bytes);

}  // namespace allot
