#include "core/spec/cluster_section.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <charconv>
#include <regex>

#include "core/spec/spec_values.h"

namespace allot {
namespace {

constexpr char kName[] = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
constexpr char kObjectName[] = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$";
constexpr char kNameIsOf[] = "a name of lower-case letters, digits and inner hyphens";
constexpr uint64_t kMostWorkers = 10000;
constexpr size_t kLongestObjectName = 253;

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
  SpecRule registry = shaped("image.registry", "localhost",
                             "^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._-]+)*$",
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

bool matches(const std::string& text, const char* pattern) {
  return text.size() <= kLongestObjectName && std::regex_match(text, std::regex(pattern));
}

Status checkTextMap(const YamlValue& value, const Site& site) {
  if (value.kind == YamlValue::Kind::kNull) return {};
  if (value.kind != YamlValue::Kind::kMap) {
    return wrongType(site, value, "a section (keys with values)");
  }
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (value.items[i].kind == YamlValue::Kind::kScalar) continue;
    return wrongType(site.under(escaped(value.keys[i])), value.items[i], "a string");
  }
  return {};
}

}  // namespace

const std::vector<SpecRule>& clusterRules() {
  static const std::vector<SpecRule> rules = makeRules();
  return rules;
}

SpecField fieldOf(const SpecRule& rule, v1::Cluster& cluster) {
  return fieldAt(&cluster, rule.path.substr(sizeof("spec.cluster.") - 1));
}

Result<v1::Cluster> readCluster(const YamlValue& root, const std::string& place) {
  v1::Cluster cluster;
  for (const SpecRule& rule : clusterRules()) {
    const SpecField target = fieldOf(rule, cluster);
    if (const YamlValue* given = findPath(root, rule.path)) {
      ALLOT_TRY(readField(rule, *given, Site{place, rule.path}, target));
    } else if (rule.when_missing == SpecDefault::kValue && rule.path != "spec.cluster.workers") {
      ALLOT_TRY(readRule(rule, rule.default_value, target));
    }
  }
  if (!cluster.kv_memory().empty() && *quantityOf(cluster.kv_memory()) < 1 << 20) {
    return Site{place, "spec.cluster.kvMemory"}.refuse(cluster.kv_memory() + " is less than 1Mi");
  }
  for (const v1::KeyValue& least : cluster.resources().requests()) {
    for (const v1::KeyValue& most : cluster.resources().limits()) {
      if (least.key() != most.key() || *quantityOf(least.value()) <= *quantityOf(most.value())) {
        continue;
      }
      return Site{place, "spec.cluster.resources.requests"}
          .under(escaped(least.key()))
          .refuse(least.value() + " is more than the limit, which is " + most.value());
    }
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

Status checkMetadata(const YamlValue& root, const std::string& place) {
  const Site site{place, "metadata"};
  if (const YamlValue* labels = findPath(root, "metadata.labels")) {
    ALLOT_TRY(checkTextMap(*labels, site.under("labels")));
  }
  if (const YamlValue* annotations = findPath(root, "metadata.annotations")) {
    ALLOT_TRY(checkTextMap(*annotations, site.under("annotations")));
  }
  const YamlValue* name_space = findPath(root, "metadata.namespace");
  if (name_space == nullptr) return {};
  const Site here = site.under("namespace");
  if (name_space->kind != YamlValue::Kind::kScalar) return wrongType(here, *name_space, "a string");
  if (!matches(name_space->text, kName)) {
    return here.refuse(doubleQuoted(name_space->text) + " is not " + kNameIsOf);
  }
  return {};
}

std::optional<double> quantityOf(std::string_view text) {
  double number = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (parsed.ec != std::errc() || !(number >= 0)) return std::nullopt;
  const std::string_view unit(parsed.ptr, text.data() + text.size() - parsed.ptr);
  if (unit.empty()) return number;
  if (unit == "m") return number / 1000;
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
