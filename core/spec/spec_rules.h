#pragma once
// The rules behind specKeys(): one row for each key under `spec`, with all that checking it needs.
//
// core/spec/spec.cpp reads experiment files by these rows alone (the proto field of a row is found
// by its JSON name), and the public SpecKey rows, the Markdown table and the schema that an API
// server holds experiments to (k8s/render/crd.h) are made from them. Part of core/spec; pure
// functions, any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"
#include "allot/v1/experiment.pb.h"
#include "core/result.h"

namespace allot {

enum class SpecType {
  kInteger,
  kNumber,
  kText,
  kChoice,
  kMethod,  // of SpecRule::phase
  kIntegers,
  kTexts,
  kMeasures,
  kSchedules,
  kMethods,
  // Of spec.cluster alone.
  kBoolean,
  kQuantity,    // "40Gi", "500m"
  kQuantities,  // by the resource's name
  kLabels,
  kTolerations
};

enum class SpecDefault {
  kValue,     // default_value is YAML, read as if it stood in the file
  kRequired,  // the key must be given
  kDerived,   // follows from other keys; default_value describes it
};

// Numbers from low, which itself may be excluded, to high.
struct NumberRange {
  double low = 0;
  bool above_low = false;
  std::optional<double> high = std::nullopt;
  bool or_empty = false;  // "" is accepted too and means 0
};

struct SpecRule {
  std::string path;  // "spec.policy.totalBudget"
  SpecType type = SpecType::kText;
  SpecDefault when_missing = SpecDefault::kValue;
  std::string default_value;
  uint64_t low = 0;  // of an integer, or of each integer in a list
  uint64_t high = 0;
  NumberRange number;
  std::vector<std::string> choices;
  std::string allowed;                             // of a text: what it may be, for messages
  bool may_be_empty = false;                       // of a text or a choice: "" is a value
  size_t most_bytes = 4096;                        // of a text
  std::string pattern;                             // of a text: what it must look like
  kernels::Phase phase = kernels::Phase::kDecode;  // of a method
  std::string meaning;
  bool live = false;  // may change while a run goes on
  // Which builds know it (core/spec/spec_schema.h), and what those did that did not, as YAML. A key
  // of a schema after the first needs both.
  uint32_t since = 1;
  std::string before;
};

// The proto field that a rule fills; every rule has one (a test walks them all).
struct SpecField {
  google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
};
SpecField fieldOf(const SpecRule& rule, v1::Spec& spec);
// Sets it to a value of the rule, given as in a file.
Status readRule(const SpecRule& rule, const std::string& yaml, const SpecField& target);

// SpecRule::default_value of a key that must be given.
inline constexpr const char* kRequired = "required";

constexpr size_t kMaxListEntries = 64;        // of every list in a file but an explicit schedule
constexpr size_t kMaxScheduleEntries = 1024;  // layers, or heads of layers
// The surrogate keeps (3 * entries)^2 / 2 numbers with every update.
constexpr size_t kMaxModelledEntries = 128;
constexpr uint64_t kMaxBudget = 1000000;  // total budget, and each entry of a schedule

const std::vector<SpecRule>& specRules();  // of the experiment; spec.cluster's: clusterRules()

// "1..1000000", ">0..10", "adam, sgd": the values of one rule, for messages.
std::string rangeText(const SpecRule& rule);

// The keys that may stand under `parent` ("" for the whole file); empty if `parent` is no section.
std::vector<std::string> knownKeys(const std::string& parent);

// The candidate that `word` was probably meant to be: edit distance at most 2 and less than the
// candidate's length; "" if there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "a, b, c"
std::string joined(const std::vector<std::string>& words);

}  // namespace allot
