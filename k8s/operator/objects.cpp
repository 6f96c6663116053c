#include "k8s/operator/objects.h"

#include <openssl/evp.h>

#include "store/redis/acl.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kPasswordEnd[] = ".password";

// What a file would say: neither what only a cluster knows nor what it adds.
std::string fileOf(const json& object) {
  json spec = object.value("spec", json::object());
  spec.erase("cluster");
  const json file = {{"apiVersion", object.value("apiVersion", "")},
                     {"kind", object.value("kind", "")},
                     {"metadata", {{"name", object.at("metadata").at("name")}}},
                     {"spec", std::move(spec)}};
  return file.dump(2) + "\n";  // JSON is YAML
}

json ownerOf(const json& object) {
  const json& metadata = object.at("metadata");
  return {{"apiVersion", object.at("apiVersion")},
          {"kind", object.at("kind")},
          {"name", metadata.at("name")},
          {"uid", metadata.value("uid", "")},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

std::optional<std::string> fromBase64(const std::string& text) {
  if (text.size() % 4 != 0 || text.size() > 4096) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  size_t padding = 0;
  while (padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  bytes.resize(static_cast<size_t>(size) - std::min<size_t>(padding, 2));
  return bytes;
}

// "x:1:187: ..." of a reader of files: an object has no lines.
void withoutColumn(const std::string& place, std::string* sentence) {
  const std::string start = place + ":1:";
  if (!sentence->starts_with(start)) return;
  const size_t end = sentence->find_first_not_of("0123456789", start.size());
  if (end != start.size() && end != std::string::npos) {
    sentence->erase(place.size(), end - place.size());
  }
}

bool names(const json& object, const char* key) {
  const json* at = &object;
  for (const char* const step : {"spec", "cluster", "image", key}) {
    const auto found = at->is_object() ? at->find(step) : at->end();
    if (found == at->end()) return false;
    at = &*found;
  }
  return true;
}

}  // namespace

Result<ExperimentObject> readExperimentObject(const json& object) {
  json file = object;
  file.erase("status");
  file["metadata"] = {{"name", object.at("metadata").at("name")},
                      {"namespace", object.at("metadata").value("namespace", "")}};
  const std::string name = object.at("metadata").at("name");
  auto read = parseExperimentObject(file.dump(), name);
  if (!read) withoutColumn(name, &read.error().message);
  return read;
}

Result<KubeObjects> objectsOf(const json& object, const ExperimentObject& experiment,
                              const TextMap& accounts, const ObjectOptions& options) {
  RenderOptions render;
  render.name_space = object.at("metadata").value("namespace", "");
  render.workers = options.workers;
  render.exports = options.exports;
  if (!names(object, "registry")) render.registry = options.registry;
  if (!names(object, "tag")) render.tag = options.tag;
  const TextMap files = {{"experiment.yaml", fileOf(object)}};
  ALLOT_ASSIGN(KubeObjects objects, renderExperiment(experiment, files, accounts, render));
  for (json& made : objects) {
    made["metadata"]["ownerReferences"] = json::array({ownerOf(object)});
    made["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "allot-operator";
  }
  return objects;
}

std::string accountsName(const std::string& experiment) { return experiment + "-accounts"; }

Result<TextMap> accountsOf(const json& secret) {
  std::map<std::string, std::string> passwords;
  const json data = secret.value("data", json::object());
  for (const AclRole& role : aclRoles()) {
    const auto found = data.find(role.name + kPasswordEnd);
    auto password = found != data.end() && found->is_string()
                        ? fromBase64(found->get<std::string>())
                        : std::nullopt;
    while (password && password->ends_with('\n')) password->pop_back();
    if (!password || password->empty()) {
      return fail(ErrorCode::kData, "Secret " + secret.at("metadata").value("name", "") +
                                        ": has no " + role.name + kPasswordEnd +
                                        "; remove it, and new accounts are made");
    }
    passwords[role.name] = *password;
  }
  return accountFiles(passwords);
}

}  // namespace allot
