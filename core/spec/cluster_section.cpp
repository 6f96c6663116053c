#include "core/spec/cluster_section.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <regex>

#include "core/spec/spec_values.h"

namespace allot {
namespace {

constexpr char kName[] = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
constexpr char kObjectName[] = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
constexpr char kNameIsOf[] = "a name of lower-case letters, digits and inner hyphens";
constexpr uint64_t kMostWorkers = 10000;
constexpr double kMebibyte = 1 << 20;
constexpr size_t kLongestObjectName = 253;
constexpr size_t kMostAnnotations = 256 << 10;  // bytes of all together
constexpr char kHugePages[] = "hugepages-";
// Folders that a worker's container has already.
constexpr const char* kTakenFolders[] = {"/bin/",   "/dev/",           "/etc/",  "/lib/",
                                         "/lib64/", "/opt/allot/bin/", "/proc/", "/run/secrets/",
                                         "/sys/",   "/tmp/",           "/usr/"};

SpecRule row(const char* path, SpecType type, const char* default_value, const char* meaning) {
  SpecRule rule;
  rule.path = std::string("spec.cluster.") + path;
  rule.type = type;
  rule.default_value = default_value;
  // A default that follows from other keys is a sentence that names them.
  if (rule.default_value.find("spec.") != std::string::npos) {
    rule.when_missing = SpecDefault::kDerived;
  }
  rule.meaning = meaning;
  rule.live = true;
  rule.may_be_empty = true;
  return rule;
}

SpecRule number(const char* path, const char* default_value, uint64_t high, const char* meaning) {
  SpecRule rule = row(path, SpecType::kInteger, default_value, meaning);
  rule.high = high;
  return rule;
}

// Makes the rule of a text with this pattern; `allowed` describes it in messages.
SpecRule shaped(const char* path, const char* default_value, const char* pattern,
                const char* allowed, const char* meaning) {
  SpecRule rule = row(path, SpecType::kText, default_value, meaning);
  rule.pattern = pattern;
  rule.allowed = allowed;
  rule.most_bytes = kLongestObjectName;
  return rule;
}

std::vector<SpecRule> makeRules() {
  SpecRule workers = number("workers", "1", kMostWorkers,
                            "Workers. Leave it out, and `kubectl scale` alone says how many.");
  SpecRule when_finished =
      row("whenFinished", SpecType::kChoice, "release",
          "What becomes of the workers once the run has ended: release ends them, so "
          "that they give back what they hold, keep leaves them for `allot extend`.");
  when_finished.choices = {"release", "keep"};
  when_finished.may_be_empty = false;
  SpecRule mount_path =
      shaped("models.mountPath", "/models", "^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$", "an absolute path",
             "Where workers find that claim: spec.model.path then begins with it.");
  mount_path.may_be_empty = false;
  SpecRule registry =
      shaped("image.registry", "localhost",
             "^[A-Za-z0-9]+([.-][A-Za-z0-9]+)*(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|"
             "65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
             "(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
             "a registry with a path, as in registry.example.org/team",
             "Where the images come from; `./run images push` sends them there.");
  registry.may_be_empty = false;
  return {
      std::move(workers),
      number("gpus", "0", 64,
             "GPUs of each worker (nvidia.com/gpu). Other kinds, a MIG slice for one, stand in "
             "resources.limits; image.tag then names a build for them."),
      row("resources.requests", SpecType::kQuantities,
          "{cpu: 250m, memory: 768Mi}; {cpu: 1, memory: 16Gi} with spec.cluster.models.claim",
          "What a worker is sure of. A request above the limit that is in force raises it."),
      row("resources.limits", SpecType::kQuantities,
          "{cpu: 1, memory: 2Gi}; {cpu: 4, memory: 96Gi} with spec.cluster.models.claim",
          "What a worker may take at most. A limit below the request in force lowers it."),
      row("kvMemory", SpecType::kQuantity, "1Gi; 40Gi with spec.cluster.models.claim",
          "A worker's memory for keys and values, on a GPU of the GPU's; on a CPU at most half of "
          "the limit."),
      shaped("models.claim", "\"\"", kObjectName, kNameIsOf,
             "Claim of a volume with models and data, which workers mount to read."),
      std::move(mount_path),
      row("storage", SpecType::kQuantity, "1Gi",
          "Size of Redis's volume, which holds the whole run. A volume that is there keeps its "
          "size."),
      std::move(registry),
      shaped("image.tag", "\"\"", "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$", "a tag",
             "Tag of the images. Empty: the version of who makes the objects."),
      row("nodeSelector", SpecType::kLabels, "{}",
          "Labels of the nodes that workers may run on, as in {nvidia.com/gpu.product: H100}."),
      row("tolerations", SpecType::kTolerations, "[]",
          "Taints of nodes that workers tolerate, as a pod has them; with gpus that of "
          "nvidia.com/gpu comes on top."),
      shaped("queue", "\"\"", kName, kNameIsOf,
             "Kueue's LocalQueue, which then decides when each worker starts."),
      row("suspend", SpecType::kBoolean, "false",
          "Ends the workers, and starts them again once it is false; the run waits meanwhile."),
      std::move(when_finished),
      shaped("results.claim", "\"\"", kObjectName, kNameIsOf,
             "Claim of a volume that the operator exports the run to, in the folder NAME/RUN, "
             "before the experiment is deleted."),
      shaped("tls.secret", "\"\"", kObjectName, kNameIsOf,
             "Secret with ca.crt, tls.crt and tls.key, a certificate for NAME-redis. All "
             "connections to Redis then use TLS. Empty: none does."),
  };
}

// ---- Rules of Kubernetes for the objects that the section becomes ----

// Returns what an API server has against a worker with this much of a resource; "" if nothing.
std::string resourceProblem(const std::string& name, double value) {
  if (name.find('/') == name.npos && name != "cpu" && name != "memory" &&
      name != "ephemeral-storage" && !name.starts_with(kHugePages)) {
    return "is no resource of a container; write cpu, memory, ephemeral-storage, hugepages-SIZE, "
           "or a name with a domain, as in nvidia.com/gpu";
  }
  if (name.starts_with("requests.")) return "begins with requests., as no resource may";
  if (name.starts_with(kHugePages)) {
    const double page = quantityOf(name.substr(sizeof kHugePages - 1)).value_or(0);
    if (page <= 0) return "has no size of pages in its name, as in hugepages-2Mi";
    if (std::fmod(value, page) != 0) return "is no multiple of the size of its pages";
  } else if (isNeverShared(name) && value != std::floor(value)) {
    return "is not a whole number";
  }
  return name == "memory" && value < kMebibyte ? "is less than 1Mi" : "";
}

void checkResources(const v1::Cluster& cluster, const Site& site, Mistakes* mistakes) {
  std::map<std::string, std::string> limits;
  if (cluster.gpus() > 0) limits[kGpuResource] = std::to_string(cluster.gpus());
  const auto check = [&](const Site& list, const v1::KeyValue& entry, bool request) {
    const Site here = list.under(escaped(entry.key()));
    const double value = *quantityOf(entry.value());
    const std::string problem = resourceProblem(entry.key(), value);
    if (!problem.empty()) mistakes->pass(here.refuse(entry.value() + " " + problem));
    const auto limit = limits.find(entry.key());
    if (limit == limits.end()) return;
    const double most = *quantityOf(limit->second);
    if (isNeverShared(entry.key()) && value != most) {
      mistakes->pass(here.refuse(entry.value() + " is not the limit, which is " + limit->second +
                                 ": a worker gets all that it asks for; remove one"));
    } else if (request && value > most) {
      mistakes->pass(
          here.refuse(entry.value() + " is more than the limit, which is " + limit->second));
    }
  };
  for (const v1::KeyValue& entry : cluster.resources().limits()) {
    check(site.under("limits"), entry, false);
    limits[entry.key()] = entry.value();
  }
  for (const v1::KeyValue& entry : cluster.resources().requests()) {
    check(site.under("requests"), entry, true);
  }
}

bool matches(const std::string& text, const char* pattern, size_t longest = kLongestObjectName) {
  return text.size() <= longest && std::regex_match(text, std::regex(pattern));
}

std::string inLowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Checks labels or annotations.
void checkTextMap(const YamlValue& map, const Site& site, bool labels, Mistakes* mistakes) {
  if (map.kind == YamlValue::Kind::kNull) return;
  if (map.kind != YamlValue::Kind::kMap) {
    mistakes->pass(wrongType(site, map, "a section (keys with values)"));
    return;
  }
  size_t bytes = 0;
  for (size_t i = 0; i < map.items.size() && !mistakes->full(); ++i) {
    const Site here = site.under(escaped(map.keys[i]));
    std::string text;
    if (!mistakes->pass(readString(map.items[i], here), &text)) continue;
    bytes += map.keys[i].size() + text.size();
    // The domain of an annotation may have capital letters.
    const std::string key = labels ? map.keys[i] : inLowerCase(map.keys[i]);
    const bool key_fits = matches(key, kLabelKeyPattern, kLongestLabelKey);
    if (!labels && !key_fits) {
      mistakes->pass(
          here.refuse("is no key of an annotation; write letters, digits and inner "
                      "- _ ., with or without DOMAIN/"));
    } else if (labels && (!key_fits || !matches(text, kLabelValuePattern))) {
      mistakes->pass(here.refuse(doubleQuoted(text) +
                                 " makes no label; write 0..63 letters, digits and inner - _ ., "
                                 "and a key of them, with or without DOMAIN/"));
    }
  }
  if (labels || bytes <= kMostAnnotations) return;
  mistakes->pass(site.refuse("has " + std::to_string(bytes) + " bytes; Kubernetes takes at most " +
                             std::to_string(kMostAnnotations)));
}

}  // namespace

const std::vector<SpecRule>& clusterRules() {
  static const std::vector<SpecRule> rules = makeRules();
  return rules;
}

SpecField fieldOf(const SpecRule& rule, v1::Cluster& cluster) {
  return fieldAt(&cluster, rule.path.substr(sizeof("spec.cluster.") - 1));
}

v1::Cluster readCluster(const YamlValue& root, const std::string& place, Mistakes* mistakes) {
  v1::Cluster cluster;
  const size_t before = mistakes->count();
  for (const SpecRule& rule : clusterRules()) {
    const SpecField target = fieldOf(rule, cluster);
    if (const YamlValue* given = findPath(root, rule.path)) {
      readField(rule, *given, Site{place, rule.path}, target, mistakes);
    } else if (rule.when_missing == SpecDefault::kValue && rule.path != "spec.cluster.workers") {
      mistakes->pass(readRule(rule, rule.default_value, target));
    }
  }
  if (mistakes->count() > before) return cluster;
  const Site site{place, "spec.cluster"};
  const auto checkSize = [&](const char* key, const std::string& size) {
    if (size.empty() || *quantityOf(size) >= kMebibyte) return;
    mistakes->pass(site.under(key).refuse(size + " is less than 1Mi"));
  };
  checkSize("kvMemory", cluster.kv_memory());
  checkSize("storage", cluster.storage());
  const std::string& mount = cluster.models().mount_path();
  if (std::any_of(std::begin(kTakenFolders), std::end(kTakenFolders), [&](std::string_view taken) {
        return taken.starts_with(mount + '/') || (mount + '/').starts_with(taken);
      })) {
    mistakes->pass(site.under("models")
                       .under("mountPath")
                       .refuse(mount + " is a worker's already; choose another path"));
  }
  checkResources(cluster, site.under("resources"), mistakes);
  for (const v1::KeyValue& limit : cluster.resources().limits()) {
    const std::string& wanted = cluster.kv_memory();
    if (limit.key() != "memory" || wanted.empty() || cluster.gpus() > 0) continue;
    if (*quantityOf(wanted) < *quantityOf(limit.value())) continue;
    mistakes->pass(
        site.under("kvMemory")
            .refuse(wanted + " is not below the limit of a worker's memory, which is " +
                    limit.value() +
                    " and holds the weights too; raise spec.cluster.resources.limits.memory"));
  }
  return cluster;
}

const std::vector<std::string>& metadataKeys() {
  static const std::vector<std::string> keys = {"name",
                                                "namespace",
                                                "labels",
                                                "annotations",
                                                "generateName",
                                                "creationTimestamp",
                                                "generation",
                                                "resourceVersion",
                                                "uid",
                                                "ownerReferences",
                                                "finalizers",
                                                "managedFields",
                                                "selfLink",
                                                "deletionTimestamp",
                                                "deletionGracePeriodSeconds"};
  return keys;
}

void checkMetadata(const YamlValue& root, const std::string& place, Mistakes* mistakes) {
  const Site site{place, "metadata"};
  for (const char* const key : {"labels", "annotations"}) {
    if (const YamlValue* map = findPath(root, "metadata." + std::string(key))) {
      checkTextMap(*map, site.under(key), std::string_view(key) == "labels", mistakes);
    }
  }
  const YamlValue* name_space = findPath(root, "metadata.namespace");
  std::string text;
  if (name_space == nullptr) return;
  const Site here = site.under("namespace");
  if (!mistakes->pass(readString(*name_space, here), &text) || matches(text, kName)) return;
  mistakes->pass(here.refuse(doubleQuoted(text) + " is not " + kNameIsOf));
}

bool isNeverShared(const std::string& name) {
  if (name.starts_with(kHugePages)) return true;
  return name.find('/') != name.npos && name.find("kubernetes.io/") == name.npos;
}

std::optional<double> quantityOf(std::string_view text) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const size_t digits = static_cast<size_t>(parsed.ptr - text.data());
  const std::string_view unit = text.substr(digits);
  if (unit.empty()) return number;
  if (text.substr(0, digits).find_first_not_of("0123456789.") != text.npos) return std::nullopt;
  if (unit == "n") return number / 1e9;
  if (unit == "u") return number / 1e6;
  if (unit == "m") return number / 1e3;
  const std::string_view letters = "kMGTPE";
  const size_t power = unit[0] == 'K' ? 0 : letters.find(unit[0]);
  const bool binary = unit.size() == 2 && unit[1] == 'i' && unit[0] != 'k';
  if (power == std::string_view::npos || (unit.size() != 1 && !binary) || unit == "K") {
    return std::nullopt;
  }
  for (size_t i = 0; i <= power; ++i) number *= binary ? 1024 : 1000;
  return number;
}

const std::vector<std::string>& tolerationOperators() {
  static const std::vector<std::string> words = {"Equal", "Exists"};
  return words;
}

const std::vector<std::string>& tolerationEffects() {
  static const std::vector<std::string> words = {"NoSchedule", "PreferNoSchedule", "NoExecute"};
  return words;
}

}  // namespace allot
