#include "k8s/render/kustomize.h"

#include <openssl/evp.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>

#include "core/digest.h"
#include "k8s/render/sources.h"
#include "k8s/render/yaml_text.h"

namespace allot {
namespace {

using nlohmann::json;

// A generated object whose name is to end with its digest; gone once it does.
constexpr char kDigestWanted[] = "digest wanted";

std::string sourceOf(const std::string& path) { return std::string(manifestSources().at(path)); }

// "components/monitoring" and "../../prometheus": "prometheus"
std::string resolved(const std::string& folder, const std::string& path) {
  std::string at = folder + "/" + path;
  for (size_t up = at.find("/../"); up != std::string::npos; up = at.find("/../")) {
    const size_t parent = up == 0 ? std::string::npos : at.rfind('/', up - 1);
    at.erase(parent == std::string::npos ? 0 : parent + 1,
             up + 4 - (parent == std::string::npos ? 0 : parent + 1));
  }
  return at;
}

json& at(json* value, std::initializer_list<const char*> path) {
  for (const char* key : path) value = &(*value)[key];
  return *value;
}

void put(const TextMap& labels, json* into) {
  for (const auto& [key, value] : labels) (*into)[key] = value;
}

// Only where there are labels already.
void putIfThere(const TextMap& labels, json* selector) {
  if (selector->is_object() && selector->contains("matchLabels")) {
    put(labels, &(*selector)["matchLabels"]);
  }
}

void labelPeers(const TextMap& labels, json* spec, const char* direction, const char* side) {
  if (!spec->contains(direction)) return;
  for (json& rule : (*spec)[direction]) {
    if (!rule.contains(side)) continue;
    for (json& peer : rule[side]) {
      if (peer.contains("podSelector")) putIfThere(labels, &peer["podSelector"]);
    }
  }
}

void labelSelectors(const TextMap& labels, json* object) {
  const std::string kind = (*object)["kind"];
  if (!object->contains("spec")) return;
  json& spec = (*object)["spec"];
  if (json* pods = podTemplateOf(object)) put(labels, &at(pods, {"metadata", "labels"}));
  if (kind == "Deployment" || kind == "StatefulSet") {
    put(labels, &at(&spec, {"selector", "matchLabels"}));
  } else if (kind == "Service") {
    put(labels, &spec["selector"]);
  } else if (kind == "NetworkPolicy") {
    putIfThere(labels, &spec["podSelector"]);
    labelPeers(labels, &spec, "ingress", "from");
    labelPeers(labels, &spec, "egress", "to");
  } else if (spec.contains("selector")) {
    putIfThere(labels, &spec["selector"]);
  }
  if (!spec.contains("volumeClaimTemplates")) return;
  for (json& claim : spec["volumeClaimTemplates"]) put(labels, &at(&claim, {"metadata", "labels"}));
}

void addMetadataLabels(const TextMap& labels, KubeObjects* objects) {
  for (json& object : *objects) put(labels, &at(&object, {"metadata", "labels"}));
}

// One entry of configMapGenerator or secretGenerator.
json generated(const std::string& folder, const json& generator, const char* kind) {
  const json options = generator.value("options", json::object());
  json object = {{"apiVersion", "v1"}, {"kind", kind}, {"metadata", {{"name", generator["name"]}}}};
  if (options.contains("labels")) object["metadata"]["labels"] = options["labels"];
  object["data"] = json::object();
  if (std::string(kind) == "Secret") {
    object["type"] = "Opaque";
  } else {
    for (const json& file : generator.value("files", json::array())) {
      object["data"][file.get<std::string>()] = sourceOf(folder + "/" + file.get<std::string>());
    }
  }
  if (!options.value("disableNameSuffixHash", false)) object[kDigestWanted] = true;
  return object;
}

// "app.kubernetes.io/component=worker" on an object of that kind.
bool isTarget(const json& target, const json& object) {
  if (object.at("kind") != target.at("kind")) return false;
  const std::string selector = target.at("labelSelector");
  const size_t equals = selector.find('=');
  const json labels = object.at("metadata").value("labels", json::object());
  return labels.value(selector.substr(0, equals), "") == selector.substr(equals + 1);
}

// "spec.groups.*.rules" and "metadata.annotations.[allot.dev/runbooks]", by its parts.
std::vector<std::string> partsOf(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t from = 0; from < path.size();) {
    const bool bracket = path[from] == '[';
    const size_t end = std::min(path.find(bracket ? ']' : '.', from), path.size());
    parts.push_back(path.substr(from + (bracket ? 1 : 0), end - from - (bracket ? 1 : 0)));
    from = end + (bracket ? 2 : 1);
  }
  return parts;
}

// Calls `change` with every value that is there.
void forEach(json* value, const std::vector<std::string>& parts, size_t depth,
             const std::function<void(json*)>& change) {
  if (depth == parts.size()) return change(value);
  if (parts[depth] == "*") {
    for (json& item : *value) forEach(&item, parts, depth + 1, change);
  } else if (value->is_object() && value->contains(parts[depth])) {
    forEach(&(*value)[parts[depth]], parts, depth + 1, change);
  }
}

// `text` with the part before, between or after the delimiters replaced.
std::string withPart(const std::string& text, const json& options, const std::string& part) {
  const std::string delimiter = options.value("delimiter", "");
  if (delimiter.empty()) return part;
  size_t from = 0;
  for (int index = options.value("index", 0); index > 0; --index) {
    const size_t next = text.find(delimiter, from);
    if (next == std::string::npos) return text;
    from = next + delimiter.size();
  }
  const size_t end = std::min(text.find(delimiter, from), text.size());
  return text.substr(0, from) + part + text.substr(end);
}

bool isSelected(const json& select, const json& object) {
  return object.at("kind") == select.at("kind") &&
         (!select.contains("name") || object.at("metadata").at("name") == select.at("name"));
}

void replaceValues(const json& replacement, KubeObjects* objects) {
  const json& source = replacement.at("source");
  std::string text;
  for (json& object : *objects) {
    if (!isSelected(source, object)) continue;
    forEach(&object, partsOf(source.at("fieldPath")), 0, [&](json* found) { text = *found; });
  }
  for (const json& target : replacement.at("targets")) {
    const json options = target.value("options", json::object());
    for (json& object : *objects) {
      if (!isSelected(target.at("select"), object)) continue;
      for (const json& path : target.at("fieldPaths")) {
        forEach(&object, partsOf(path), 0,
                [&](json* found) { *found = withPart(*found, options, text); });
      }
    }
  }
}

const char* mergeKeyOf(const std::string& list) {
  static const std::map<std::string_view, const char*> keys = {
      {"containers", "name"},    {"initContainers", "name"},   {"env", "name"},
      {"volumes", "name"},       {"imagePullSecrets", "name"}, {"volumeMounts", "mountPath"},
      {"ports", "containerPort"}};
  const auto found = keys.find(list);
  return found == keys.end() ? nullptr : found->second;
}

// As kustomize orders it: what the patch names comes first.
void mergeLists(json* list, const json& patch, const char* key) {
  json merged = json::array();
  for (const json& item : patch) {
    const auto same = std::find_if(list->begin(), list->end(), [&](const json& other) {
      return other.contains(key) && other.at(key) == item.at(key);
    });
    merged.push_back(json::object());
    if (same != list->end()) {
      merged.back() = std::move(*same);
      list->erase(same);
    }
    mergeInto(&merged.back(), item);
  }
  for (json& item : *list) merged.push_back(std::move(item));
  *list = std::move(merged);
}

// Base64 as kustomize writes it: what is longer than a line in lines.
std::string inLines(const std::string& base64) {
  constexpr size_t kLine = 70;
  if (base64.size() < kLine) return base64;
  std::string text;
  for (size_t i = 0; i < base64.size(); i += kLine) text += base64.substr(i, kLine) + "\n";
  return text;
}

// New names of this kind's objects.
struct Renames {
  std::map<std::pair<std::string, std::string>, std::string> names;

  void apply(const char* kind, json* value) const {
    const auto found = names.find({kind, value->get<std::string>()});
    if (found != names.end()) *value = found->second;
  }
};

void renameReferences(const Renames& renames, json* object) {
  json& spec = (*object)["spec"];
  if (spec.contains("serviceName")) renames.apply("Service", &spec["serviceName"]);
  json* const pods = podTemplateOf(object);
  if (pods == nullptr) return;
  json& pod = (*pods)["spec"];
  if (pod.contains("serviceAccountName")) {
    renames.apply("ServiceAccount", &pod["serviceAccountName"]);
  }
  if (!pod.contains("volumes")) return;
  for (json& volume : pod["volumes"]) {
    if (volume.contains("configMap")) renames.apply("ConfigMap", &volume["configMap"]["name"]);
    if (volume.contains("secret")) renames.apply("Secret", &volume["secret"]["secretName"]);
    if (volume.contains("persistentVolumeClaim")) {
      renames.apply("PersistentVolumeClaim", &volume["persistentVolumeClaim"]["claimName"]);
    }
  }
}

}  // namespace

json* podTemplateOf(json* object) {
  const std::string kind = (*object)["kind"];
  if (kind != "Deployment" && kind != "StatefulSet" && kind != "Job") return nullptr;
  return &(*object)["spec"]["template"];
}

void withoutDigest(json* object) { object->erase(kDigestWanted); }

void mergeInto(json* value, const json& patch, const std::string& key) {
  if (patch.is_object() && value->is_object()) {
    for (const auto& [name, item] : patch.items()) {
      if (item.is_null()) {
        value->erase(name);
      } else if (value->contains(name)) {
        mergeInto(&(*value)[name], item, name);
      } else {
        (*value)[name] = item;
      }
    }
    return;
  }
  const char* const merge_key = mergeKeyOf(key);
  if (patch.is_array() && value->is_array() && merge_key != nullptr) {
    mergeLists(value, patch, merge_key);
    return;
  }
  *value = patch;
}

void accumulate(const std::string& folder, KubeObjects* objects) {
  const json file = yamlObjects(sourceOf(folder + "/kustomization.yaml")).at(0);
  for (const auto& [key, value] : file.items()) {
    static const std::set<std::string> known = {"apiVersion",
                                                "kind",
                                                "resources",
                                                "components",
                                                "configMapGenerator",
                                                "secretGenerator",
                                                "patches",
                                                "labels",
                                                "replacements",
                                                "images"};  // placed by who renders
    if (!known.contains(key)) {
      throw std::logic_error("k8s/" + folder + "/kustomization.yaml has " + key +
                             ", which k8s/render/kustomize.cpp does not do");
    }
  }
  for (const json& resource : file.value("resources", json::array())) {
    for (json& object : yamlObjects(sourceOf(folder + "/" + resource.get<std::string>()))) {
      objects->push_back(std::move(object));
    }
  }
  for (const json& component : file.value("components", json::array())) {
    accumulate(resolved(folder, component), objects);
  }
  for (const json& generator : file.value("configMapGenerator", json::array())) {
    objects->push_back(generated(folder, generator, "ConfigMap"));
  }
  for (const json& generator : file.value("secretGenerator", json::array())) {
    objects->push_back(generated(folder, generator, "Secret"));
  }
  for (const json& patch : file.value("patches", json::array())) {
    json change = yamlObjects(patch.at("patch")).at(0);
    change.erase("metadata");  // its name is the target's only on paper
    for (json& object : *objects) {
      if (isTarget(patch.at("target"), object)) mergeInto(&object, change);
    }
  }
  for (const json& labels : file.value("labels", json::array())) {
    TextMap pairs;
    for (const auto& [key, value] : labels.at("pairs").items()) {
      pairs[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    if (labels.value("includeSelectors", false)) {
      addLabels(pairs, objects);
    } else {
      addMetadataLabels(pairs, objects);
    }
  }
  for (const json& replacement : file.value("replacements", json::array())) {
    replaceValues(replacement, objects);
  }
}

void addLabels(const TextMap& labels, KubeObjects* objects) {
  addMetadataLabels(labels, objects);
  for (json& object : *objects) labelSelectors(labels, &object);
}

void prefixNames(const std::string& prefix, KubeObjects* objects) {
  Renames renames;
  for (json& object : *objects) {
    if (object["kind"] == "Namespace") continue;
    json& name = object["metadata"]["name"];
    std::string now = prefix + name.get<std::string>();
    if (object.erase(kDigestWanted) > 0) now += "-" + contentDigest(object);
    renames.names[{object["kind"], name}] = now;
    name = now;
  }
  for (json& object : *objects) {
    if (object.contains("spec")) renameReferences(renames, &object);
  }
}

std::string contentDigest(const json& object) {
  // As kustomize has it: the JSON that Go writes of kind, type and content, without a name.
  json content = {{"kind", object.at("kind")}, {"name", ""}, {"data", object.at("data")}};
  if (object.contains("type")) {
    content["type"] = object["type"];
    for (json& value : content["data"]) value = inLines(value);
  }
  std::string text;
  for (const char c : content.dump()) {
    if (c == '<') {
      text += "\\u003c";
    } else if (c == '>') {
      text += "\\u003e";
    } else if (c == '&') {
      text += "\\u0026";
    } else {
      text += c;
    }
  }
  std::string digest = sha256Hex(text).substr(0, 10);
  for (char& c : digest) {
    static constexpr std::string_view from = "013ae", to = "ghkmt";
    if (const size_t i = from.find(c); i != std::string_view::npos) c = to[i];
  }
  return digest;
}

std::string toBase64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

}  // namespace allot
