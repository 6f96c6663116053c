#pragma once
// The rules behind specKeys(): a row for each setting under `spec`, with all that its check needs.
//
// core/spec/spec.cpp reads experiment files by these rows. The rows of SpecKey, the Markdown table
// and the schema of the API server (k8s/render/crd.h) are made from them. Part of core/spec; pure
// functions, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"
#include "allot/v1/experiment.pb.h"
#include "core/result.h"
#include "core/words.h"

namespace allot {

// spec_keys.cpp has a name for each type, in this order.
enum class SpecType {
  kInteger,
  kNumber,
  kText,
  kChoice,
  kMethod,
  kIntegers,
  kTexts,
  kMeasures,
  kSchedules,
  kMethods,
  // In spec.cluster only.
  kBoolean,
  kQuantity,    // "40Gi", "500m"
  kQuantities,  // a section: name of a resource, quantity
  kLabels,
  kTolerations
};

enum class SpecDefault {
  kValue,     // default_value is YAML, read as if it stood in the file
  kRequired,  // the key must be given
  kDerived,   // computed from other keys; default_value describes how
};

// The allowed values of a number.
struct NumberRange {
  double low = 0;
  bool above_low = false;  // low itself is refused
  std::optional<double> high = std::nullopt;
  bool or_empty = false;  // "" is accepted and means 0
};

struct SpecRule {
  std::string path;  // "spec.policy.totalBudget"
  SpecType type = SpecType::kText;
  SpecDefault when_missing = SpecDefault::kValue;
  std::string default_value;
  uint64_t low = 0;  // of an integer, or of each integer in a list
  uint64_t high = 0;
  NumberRange number;
  bool or_share = false;  // of a budget: "15 %" is accepted, as spec.policy.price says
  std::vector<std::string> choices;
  std::string allowed;                             // of a text: the values, for messages
  bool may_be_empty = false;                       // of a text or choice: ""; of a list: []
  size_t most_bytes = 4096;                        // of a text
  std::string pattern;                             // of a text: regular expression
  kernels::Phase phase = kernels::Phase::kDecode;  // of a method
  std::string meaning;
  bool live = false;  // may change while a run goes on
  // since: the first schema with this key (core/spec/spec_schema.h). before: if `since` is above 1,
  // the value, as YAML, by which earlier builds acted.
  uint32_t since = 1;
  std::string before;
};

// The proto field that a rule fills.
struct SpecField {
  google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
};
// Returns the field with this dotted path of JSON names, and makes the sections that are missing.
SpecField fieldAt(google::protobuf::Message* message, std::string_view path);
// Returns the field of a rule in `spec`, and makes its section if it is missing.
SpecField fieldOf(const SpecRule& rule, v1::Spec& spec);
// Sets `target`, the field of `rule`, to a value that is given as YAML. kUsage if the rule refuses
// the value.
Status readRule(const SpecRule& rule, const std::string& yaml, const SpecField& target);

// default_value of a rule with SpecDefault::kRequired.
inline constexpr const char* kRequired = "required";

constexpr size_t kMaxListEntries = 64;        // of a list or section, except an explicit schedule
constexpr size_t kMaxScheduleEntries = 1024;  // layers, or heads of all layers
// Most entries by heads with which a surrogate learns: it keeps (3 * entries)^2 / 2 numbers.
constexpr size_t kMaxModelledEntries = 128;
constexpr uint64_t kMaxBudget = 1000000;  // total budget, and each entry of a schedule
constexpr char kSharePattern[] = "^([1-9][0-9]?|100) ?%$";  // a budget as a share

// Returns the rules of all keys except those of spec.cluster (clusterRules).
const std::vector<SpecRule>& specRules();

// Returns the values of a rule for messages: "1..1000000", ">0..10", "adam, sgd".
std::string rangeText(const SpecRule& rule);

// Returns the keys that are accepted under `parent` ("" for the whole file); empty if `parent`
// accepts none, or accepts any.
std::vector<std::string> knownKeys(const std::string& parent);

// Returns the candidate with the least edit distance to `word`. Returns "" if that distance is
// above 2, or is not less than the candidate's length.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace allot
