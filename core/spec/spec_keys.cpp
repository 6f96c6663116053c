// The texts that people see of the rules: the table of keys, ranges, and keys probably meant.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/spec/cluster_section.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/words.h"

namespace allot {
namespace {

std::string decimal(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  return std::string(buffer, end.ptr);
}

std::string typeName(SpecType type) {
  return std::string(wordAt(
      type,
      {"integer", "number", "string", "string", "method", "list of integers", "list of strings",
       "list of measures", "list of schedules", "list of methods", "boolean", "quantity",
       "section of quantities", "section of labels", "list of tolerations"}));
}

std::string allowedText(const SpecRule& rule) {
  std::string allowed = rangeText(rule);
  const bool list = rule.type == SpecType::kIntegers;
  const bool text = rule.type == SpecType::kText || rule.type == SpecType::kChoice;
  if (rule.may_be_empty && list) allowed = "[] or " + allowed;
  if (rule.number.or_empty || (rule.may_be_empty && text)) allowed = "\"\" or " + allowed;
  if (rule.type == SpecType::kSchedules) {
    allowed += ", or a list of integers 0.." + std::to_string(kMaxBudget) + ", one for each layer";
  }
  return allowed;
}

size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<SpecKey>& specKeys() {
  static const std::vector<SpecKey> keys = [] {
    std::vector<SpecKey> all;
    for (const auto* rules : {&specRules(), &clusterRules()}) {
      for (const SpecRule& rule : *rules) {
        all.push_back({rule.path, typeName(rule.type), rule.default_value, allowedText(rule),
                       rule.meaning, rule.live});
      }
    }
    return all;
  }();
  return keys;
}

std::string specKeysMarkdown() {
  std::string table =
      "| key | default | allowed | live | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const SpecKey& key : specKeys()) {
    const bool literal =
        key.default_value.find("spec.") == std::string::npos && key.default_value != kRequired;
    const std::string shown = literal ? "`" + key.default_value + "`" : key.default_value;
    table += "| `" + key.path + "` | " + shown + " | " + key.type + ": " + key.allowed + " | " +
             (key.live ? "yes" : "") + " | " + key.meaning + " |\n";
  }
  return table;
}

std::string rangeText(const SpecRule& rule) {
  switch (rule.type) {
    case SpecType::kInteger:
    case SpecType::kIntegers:
      return std::to_string(rule.low) + ".." + std::to_string(rule.high) +
             (rule.or_share ? ", or 1 %..100 %" : "");
    case SpecType::kNumber: {
      const std::string low = (rule.number.above_low ? ">" : "") + decimal(rule.number.low);
      if (rule.number.high) return low + ".." + decimal(*rule.number.high);
      return low;
    }
    case SpecType::kText:
    case SpecType::kTexts:
      return rule.allowed.empty() ? "any path" : rule.allowed;
    case SpecType::kChoice:
    case SpecType::kMeasures:
    case SpecType::kSchedules:
      return joined(rule.choices);
    case SpecType::kMethod:
    case SpecType::kMethods: {
      const auto& names = kernels::methodNames(rule.phase);
      return joined({names.begin(), names.end()});
    }
    case SpecType::kBoolean:
      return "true, false";
    case SpecType::kQuantity:
      return "as in 40Gi or 500m";
    case SpecType::kQuantities:
      return "names of resources, each with a quantity as in 40Gi or 500m";
    case SpecType::kLabels:
      return "labels, each with its value";
    case SpecType::kTolerations:
      return "sections with key, operator, value, effect, tolerationSeconds";
  }
  return "";
}

std::vector<std::string> knownKeys(const std::string& parent) {
  if (parent.empty()) return {"apiVersion", "kind", "metadata", "spec", "status"};
  if (parent == "metadata") return metadataKeys();
  std::vector<std::string> keys;
  const std::string prefix = parent + ".";
  for (const auto* rules : {&specRules(), &clusterRules()}) {
    for (const SpecRule& rule : *rules) {
      if (rule.path.compare(0, prefix.size(), prefix) != 0) continue;
      const std::string key =
          rule.path.substr(prefix.size(), rule.path.find('.', prefix.size()) - prefix.size());
      if (keys.empty() || keys.back() != key) keys.push_back(key);
    }
  }
  return keys;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kFar = 3;
  size_t best = kFar;
  std::string found;
  for (const std::string& candidate : candidates) {
    // The lengths decide for most words, and keep a hostile one from costing time.
    if (word.size() + kFar <= candidate.size() || candidate.size() + kFar <= word.size()) continue;
    const size_t distance = editDistance(word, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace allot
