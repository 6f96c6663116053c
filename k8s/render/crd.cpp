#include "k8s/render/crd.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/spec/cluster_section.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr uint64_t kExactInJson = uint64_t{1} << 53;
constexpr char kUntyped[] = "x-kubernetes-preserve-unknown-fields";
constexpr char kIntOrString[] = "x-kubernetes-int-or-string";

bool areNumbers(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.find_first_not_of("0123456789") != std::string::npos) return false;
  }
  return !words.empty();
}

json textSchema(const SpecRule& rule) {
  json schema = {{"type", "string"}, {"maxLength", rule.most_bytes}};
  if (!rule.may_be_empty) schema["minLength"] = 1;
  if (!rule.pattern.empty()) {
    schema["pattern"] = rule.may_be_empty ? "^$|" + rule.pattern : rule.pattern;
  }
  return schema;
}

// A word; those that are numbers may stand in a file as numbers.
json choiceSchema(const SpecRule& rule, bool may_be_empty) {
  const bool numbers = areNumbers(rule.choices);
  json words = json::array();
  for (const std::string& word : rule.choices) {
    if (numbers) words.push_back(std::stoi(word));
    words.push_back(word);
  }
  if (may_be_empty) words.push_back("");
  if (numbers) return {{kIntOrString, true}, {"enum", std::move(words)}};
  return {{"type", "string"}, {"enum", std::move(words)}};
}

// A word, and parameters behind it.
json measureSchema(const SpecRule& rule) {
  std::string words;
  for (const std::string& word : rule.choices) words += (words.empty() ? "" : "|") + word;
  return {{"type", "string"}, {"maxLength", 4096}, {"pattern", "^(" + words + ")( .+)?$"}};
}

json integerSchema(const SpecRule& rule) {
  json schema = {{"type", "integer"}, {"format", "int64"}, {"minimum", rule.low}};
  // A server reads larger bounds as inexact numbers; the format is limit enough.
  if (rule.high <= kExactInJson) schema["maximum"] = rule.high;
  if (!rule.or_share) return schema;
  schema.erase("type");
  schema.erase("format");
  schema[kIntOrString] = true;
  schema["maxLength"] = 8;
  schema["pattern"] = kSharePattern;
  return schema;
}

json quantitySchema() { return {{kIntOrString, true}, {"pattern", kQuantityPattern}}; }

json tolerationSchema() {
  return {
      {"type", "object"},
      {"properties",
       {{"key", {{"type", "string"}, {"maxLength", 316}}},
        {"operator", {{"type", "string"}, {"enum", tolerationOperators()}}},
        {"value", {{"type", "string"}, {"maxLength", 63}}},
        {"effect", {{"type", "string"}, {"enum", tolerationEffects()}}},
        {"tolerationSeconds",
         {{"type", "integer"}, {"format", "int64"}, {"minimum", 0}, {"maximum", kMostSeconds}}}}}};
}

json listOf(json entries, const SpecRule& rule) {
  json schema = {{"type", "array"}, {"maxItems", kMaxListEntries}, {"items", std::move(entries)}};
  if (!rule.may_be_empty) schema["minItems"] = 1;
  return schema;
}

json mapOf(json values) {
  return {{"type", "object"},
          {"maxProperties", kMaxListEntries},
          {"additionalProperties", std::move(values)}};
}

json typeSchema(const SpecRule& rule) {
  switch (rule.type) {
    case SpecType::kInteger:
      return integerSchema(rule);
    case SpecType::kNumber:
      return {{kUntyped, true}};
    case SpecType::kText:
      return textSchema(rule);
    case SpecType::kChoice:
      return choiceSchema(rule, rule.may_be_empty);
    case SpecType::kMethod:
      return {{"type", "string"}, {"minLength", 1}, {"maxLength", 4096}};
    case SpecType::kIntegers:
      return listOf(integerSchema(rule), rule);
    case SpecType::kTexts:
    case SpecType::kMethods:
      return listOf({{"type", "string"}, {"minLength", 1}, {"maxLength", 4096}}, rule);
    case SpecType::kMeasures:
      return listOf(measureSchema(rule), rule);
    case SpecType::kSchedules:
      return listOf({{kUntyped, true}}, rule);
    case SpecType::kBoolean:
      return {{"type", "boolean"}};
    case SpecType::kQuantity:
      return quantitySchema();
    case SpecType::kQuantities:
      return mapOf(quantitySchema());
    case SpecType::kLabels:
      return mapOf({{"type", "string"}, {"maxLength", 63}, {"pattern", kLabelValuePattern}});
    case SpecType::kTolerations:
      return listOf(tolerationSchema(), rule);
  }
  return {};
}

// Returns the properties of the section of a key, which is made if it is not there.
json& propertiesFor(const std::string& path, json& spec) {
  json* section = &spec;
  size_t from = sizeof("spec.") - 1;
  for (size_t dot = path.find('.', from); dot != std::string::npos; dot = path.find('.', from)) {
    section = &(*section)["properties"][path.substr(from, dot - from)];
    (*section)["type"] = "object";
    from = dot + 1;
  }
  return (*section)["properties"];
}

json specSchema() {
  json spec = {{"type", "object"}, {"required", {"model"}}};
  for (const auto* rules : {&specRules(), &clusterRules()}) {
    for (const SpecRule& rule : *rules) {
      json schema = typeSchema(rule);
      schema["description"] = rule.meaning;
      propertiesFor(rule.path, spec)[rule.path.substr(rule.path.rfind('.') + 1)] =
          std::move(schema);
    }
  }
  spec["properties"]["model"]["required"] = {"path"};
  // The path of the scale subresource has to be there, whatever a file says.
  json& cluster = spec["properties"]["cluster"];
  cluster["default"] = json::object();
  cluster["properties"]["workers"]["default"] = 1;
  return spec;
}

// ---- keys that cannot change ----

// Returns the default of a rule as a value of CEL.
std::string celValue(const SpecRule& rule) {
  std::string text = rule.default_value;
  if (rule.type == SpecType::kInteger) return text;
  const bool list = rule.type == SpecType::kIntegers || rule.type == SpecType::kMeasures ||
                    rule.type == SpecType::kMethods || rule.type == SpecType::kTexts;
  if (list && rule.type != SpecType::kIntegers && text.size() > 2) {
    return "['" + text.substr(1, text.size() - 2) + "']";  // those of the table have one entry
  }
  if (list) return text;
  if (text == "\"\"") text.clear();
  return "'" + text + "'";
}

// Returns "has(self.spec.a) && has(self.spec.a.b)" for spec.a.b.
std::string celHas(const std::string& object, const std::string& path) {
  std::string text;
  for (size_t dot = path.find('.', sizeof("spec.") - 1); dot != std::string::npos;
       dot = path.find('.', dot + 1)) {
    text += "has(" + object + "." + path.substr(0, dot) + ") && ";
  }
  return text + "has(" + object + "." + path + ")";
}

std::string celOf(const SpecRule& rule, const std::string& object) {
  const bool either = rule.type == SpecType::kChoice && areNumbers(rule.choices);
  const std::string value = object + "." + rule.path;
  return "(" + celHas(object, rule.path) + " ? " + (either ? "string(" + value + ")" : value) +
         " : " + celValue(rule) + ")";
}

// Returns the expression that the value of `rule` is the same in self and oldSelf.
std::string celSame(const SpecRule& rule) {
  if (rule.when_missing == SpecDefault::kValue) {
    return celOf(rule, "self") + " == " + celOf(rule, "oldSelf");
  }
  const std::string now = celHas("self", rule.path), before = celHas("oldSelf", rule.path);
  return "(" + now + ") == (" + before + ") && (!(" + now + ") || self." + rule.path +
         " == oldSelf." + rule.path + ")";
}

json ruleFor(const std::string& same, const std::string& path) {
  return {{"rule", "!has(oldSelf.status) || !has(oldSelf.status.startedAt) || (" + same + ")"},
          {"message", fixedSentence(path)}};
}

json fixedRules() {
  json rules = json::array();
  rules.push_back(ruleFor("has(self.spec.update) == has(oldSelf.spec.update)", "spec.update"));
  for (const SpecRule& rule : specRules()) {
    // What has no type in the schema has none in CEL.
    const bool untyped = rule.type == SpecType::kNumber || rule.type == SpecType::kSchedules;
    if (!rule.live && !untyped) rules.push_back(ruleFor(celSame(rule), rule.path));
  }
  return rules;
}

// ---- status ----

json text(const char* description, size_t most = 4096) {
  return {{"type", "string"}, {"maxLength", most}, {"description", description}};
}

json integer(const char* description) {
  return {{"type", "integer"}, {"format", "int64"}, {"description", description}};
}

json time(const char* description) {
  return {{"type", "string"}, {"format", "date-time"}, {"description", description}};
}

json conditionsSchema() {
  return {
      {"type", "array"},
      {"maxItems", 16},
      {"x-kubernetes-list-type", "map"},
      {"x-kubernetes-list-map-keys", {"type"}},
      {"items",
       {{"type", "object"},
        {"required", {"type", "status", "reason", "message", "lastTransitionTime"}},
        {"properties",
         {{"type", text("Accepted, StoreReady, Progressing, Complete, Degraded or Exported.", 316)},
          {"status", {{"type", "string"}, {"enum", {"True", "False", "Unknown"}}}},
          {"reason", text("One word, for programs.", 1024)},
          {"message", text("One sentence, for people.", 32768)},
          {"observedGeneration", integer("The generation that it is about.")},
          {"lastTransitionTime", time("When status last changed.")}}}}}};
}

json statusSchema() {
  const json best = {
      {"type", "object"},
      {"description", "The newest held-out accuracy at spec.policy.totalBudget."},
      {"properties",
       {{"schedule",
         text("Which one: learned, or of a run that learns nothing the one that scored highest.")},
        {"accuracy", text("Under that schedule.")},
        {"ci95", text("Its 95 % interval, as in [0.67, 0.75].")},
        {"interval", text("The kind of that interval: wilson, bootstrap or normal.")},
        {"uniform", text("Under the uniform schedule.")},
        {"version", integer("The update that it was measured after.")}}}};
  const json workers = {{"type", "object"},
                        {"properties",
                         {{"desired", integer("How many there are to be.")},
                          {"pods", integer("How many there are.")},
                          {"ready", integer("How many of them are ready.")},
                          {"selector", text("The labels of their pods, for autoscalers.")},
                          {"text", text("ready/desired")}}}};
  return {{"type", "object"},
          {"properties",
           {{"observedGeneration", integer("The generation that this status is about.")},
            {"runId", text("The run's id.")},
            {"startedAt", time("When the first result counted; from then on fixed keys are.")},
            {"finishedAt", time("When the run ended.")},
            {"state", text("starting, running, evaluating, paused, stopped or finished.")},
            {"progress", text("Updates made, of those in all, as in 117/150.")},
            {"reward", text("Mean reward of the newest update.")},
            {"best", best},
            {"lag", text("Updates between a result's policy and the one it was consumed by.")},
            {"workerHours", text("Hours of workers so far, with or without a GPU.")},
            {"workers", workers},
            {"page", text("Where the run's page is.")},
            {"conditions", conditionsSchema()}}}};
}

json column(const char* name, const char* type, const char* path, int priority = 0) {
  json column = {{"name", name}, {"type", type}, {"jsonPath", path}};
  if (priority != 0) column["priority"] = priority;
  return column;
}

json columns() {
  return {column("State", "string", ".status.state"),
          column("Updates", "string", ".status.progress"),
          column("Reward", "string", ".status.reward"),
          column("Acc", "string", ".status.best.accuracy"),
          column("Uniform", "string", ".status.best.uniform"),
          column("Workers", "string", ".status.workers.text"),
          column("Age", "date", ".metadata.creationTimestamp"),
          column("Lag", "string", ".status.lag", 1),
          column("Worker-h", "string", ".status.workerHours", 1),
          column("Run", "string", ".status.runId", 1),
          column("Why", "string", ".status.conditions[?(@.type==\"Progressing\")].message", 1)};
}

}  // namespace

json experimentCrd(CrdRules rules) {
  const json name = {
      {"type", "string"}, {"maxLength", 50}, {"pattern", "^[a-z]([-a-z0-9]*[a-z0-9])?$"}};
  json schema = {
      {"type", "object"},
      {"description", "Where should a language model's decode attention spend its reads?"},
      {"required", {"spec"}},
      {"properties",
       {{"apiVersion", {{"type", "string"}}},
        {"kind", {{"type", "string"}}},
        {"metadata", {{"type", "object"}, {"properties", {{"name", name}}}}},
        {"spec", specSchema()},
        {"status", statusSchema()}}}};
  if (rules == CrdRules::kWith) schema["x-kubernetes-validations"] = fixedRules();
  const json scale = {{"specReplicasPath", ".spec.cluster.workers"},
                      {"statusReplicasPath", ".status.workers.pods"},
                      {"labelSelectorPath", ".status.workers.selector"}};
  const json version = {{"name", "v1alpha1"},
                        {"served", true},
                        {"storage", true},
                        {"subresources", {{"status", json::object()}, {"scale", scale}}},
                        {"additionalPrinterColumns", columns()},
                        {"schema", {{"openAPIV3Schema", std::move(schema)}}}};
  return {
      {"apiVersion", "apiextensions.k8s.io/v1"},
      {"kind", "CustomResourceDefinition"},
      {"metadata",
       {{"name", "experiments.allot.dev"},
        {"labels", {{"app.kubernetes.io/name", "allot"}, {"app.kubernetes.io/part-of", "allot"}}}}},
      {"spec",
       {{"group", "allot.dev"},
        {"scope", "Namespaced"},
        {"names",
         {{"kind", "Experiment"},
          {"listKind", "ExperimentList"},
          {"plural", "experiments"},
          {"singular", "experiment"},
          {"shortNames", {"allotexp"}},
          {"categories", {"allot"}}}},
        {"versions", json::array({version})}}}};
}

}  // namespace allot
