#include "core/spec/spec_values.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>
#include <system_error>
#include <unordered_set>

#include "core/spec/choices.h"
#include "core/spec/cluster_section.h"
#include "core/spec/measure_options.h"

namespace allot {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxText = 4096;  // bytes of a method or an entry of a list

// Returns the line of the value at the path; 0 if there is none.
size_t lineOf(const YamlValue& root, std::string_view path) {
  const YamlValue* value = &root;
  for (bool found = true; found && !path.empty();) {
    found = false;
    for (size_t i = 0; !found && i < value->items.size(); ++i) {
      const bool list = value->kind == YamlValue::Kind::kList;
      const std::string step = list ? "[" + std::to_string(i) + "]" : escaped(value->keys[i]);
      if (!path.starts_with(step)) continue;
      const std::string_view rest = path.substr(step.size());
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;  // a longer key
      found = true;
      value = &value->items[i];
      path = rest.substr(rest.starts_with('.') ? 1 : 0);
    }
  }
  return path.empty() ? value->line : 0;
}

// ---- single values ----

// Returns a number without its leading zeros: "0.5" of "00.5".
std::string withoutZeros(const std::string& digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  size_t zeros = 0;
  while (zeros + 1 < end && digits[zeros] == '0') ++zeros;
  return digits.substr(zeros);
}

// Checks that a number has no leading zeros, which make it octal for YAML 1.1.
Status checkZeros(const std::string& text, const Site& site) {
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.size() < 2 || digits[0] != '0' || digits[1] < '0' || digits[1] > '9') return {};
  const std::string decimal = withoutZeros(digits);
  uint64_t octal = 0;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, octal, 8);
  const bool both = parsed.ec == std::errc() && parsed.ptr == end;
  const std::string other = both ? std::to_string(octal) : decimal;
  return site.refuse(escaped(text) + " begins with 0, which Kubernetes reads as octal; write " +
                     escaped(other == decimal ? decimal : other + " or " + decimal));
}

Result<uint64_t> readInteger(const YamlValue& value, uint64_t low, uint64_t high,
                             const Site& site) {
  const std::string& text = value.text;
  const size_t sign = text.size() > 1 && text[0] == '-' ? 1 : 0;
  if (value.kind != YamlValue::Kind::kScalar || text.empty() ||
      text.find_first_not_of("0123456789", sign) != std::string::npos) {
    return wrongType(site, value, "an integer");
  }
  if (value.style == YamlValue::Style::kQuoted) {
    return site.refuse(described(value) + " is a text to Kubernetes; write " +
                       escaped(sign == 1 ? text : withoutZeros(text)) + " without quotes");
  }
  ALLOT_TRY(checkZeros(text, site));
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + sign, end, number);
  const bool minus = sign == 1 && number != 0;
  if (parsed.ec != std::errc() || minus || number < low || number > high) {
    return site.refuse(escaped(text) + " is out of range " + std::to_string(low) + ".." +
                       std::to_string(high));
  }
  return number;
}

// Reads a budget, which may be a share of dense attention's price. Whether it has to be one is for
// core/spec/spec_prices.h to say.
Result<uint64_t> readBudget(const YamlValue& value, const SpecRule& rule, const Site& site) {
  if (!rule.or_share || !isShare(value)) return readInteger(value, rule.low, rule.high, site);
  YamlValue number = value;
  number.text = value.text.substr(0, value.text.find_first_of(" %"));
  number.style = YamlValue::Style::kEither;
  return readInteger(number, 1, 100, site);
}

Result<double> readNumber(const YamlValue& value, const SpecRule& rule, const Site& site) {
  const std::string& text = value.text;
  const bool scalar = value.kind == YamlValue::Kind::kScalar;
  if (scalar && text.empty() && rule.number.or_empty) return 0.0;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (!scalar || parsed.ec == std::errc::invalid_argument || parsed.ptr != end ||
      !std::isfinite(number)) {
    return wrongType(site, value, "a finite number");
  }
  ALLOT_TRY(checkZeros(text, site));
  if (parsed.ec != std::errc() && std::abs(std::strtod(text.c_str(), nullptr)) < 1) {
    return site.refuse(escaped(text) + " is too small for a number of 64 bits; write 0");
  }
  const NumberRange& range = rule.number;
  const bool below = range.above_low ? number <= range.low : number < range.low;
  if (parsed.ec != std::errc() || below || (range.high && number > *range.high)) {
    return site.refuse(escaped(text) + " is out of range " + rangeText(rule));
  }
  return number + 0.0;  // -0 becomes 0: equal files have equal bytes
}

Result<std::string> readText(const YamlValue& value, const Site& site, size_t most = kMaxText) {
  ALLOT_TRY(readString(value, site));
  if (value.text.empty()) return site.refuse("\"\" is empty; write a value");
  if (value.text.size() > most) {
    return site.refuse("has more than " + std::to_string(most) + " bytes");
  }
  for (const char c : value.text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      return site.refuse(doubleQuoted(value.text) + " has control characters; remove them");
    }
  }
  return value.text;
}

Result<std::string> readChoice(const YamlValue& value, const std::vector<std::string>& choices,
                               const Site& site) {
  ALLOT_TRY(readString(value, site));
  for (const std::string& choice : choices) {
    if (value.text == choice) return choice;
  }
  return site.refuse(doubleQuoted(value.text) + " is not one of " + joined(choices) +
                     didYouMean(nearest(value.text, choices)));
}

// Returns the shortest text of the method, so that equal methods make equal files.
Result<std::string> readMethod(const SpecRule& rule, const YamlValue& value, const Site& site) {
  ALLOT_ASSIGN(const std::string text, readText(value, site));
  kernels::MethodOptions options;
  if (const auto wrong = kernels::parseMethod(text, &options, rule.phase)) {
    const auto& names = kernels::methodNames(rule.phase);
    const std::string name = text.substr(0, text.find(' '));
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    return site.refuse(doubleQuoted(text) + ": " + *wrong +
                       (known ? "" : didYouMean(nearest(name, {names.begin(), names.end()}))));
  }
  return kernels::methodText(options);
}

Result<MeasureOptions> readMeasure(const SpecRule& rule, const YamlValue& value, const Site& site) {
  ALLOT_ASSIGN(const std::string text, readText(value, site));
  YamlValue word = value;
  word.text = text.substr(0, text.find(' '));
  ALLOT_TRY(readChoice(word, rule.choices, site));
  MeasureOptions options;
  if (const auto wrong = parseMeasure(text, &options)) {
    return site.refuse(doubleQuoted(text) + ": " + *wrong);
  }
  return options;
}

Result<v1::Schedule> readSchedule(const YamlValue& value, const SpecRule& rule, const Site& site) {
  v1::Schedule schedule;
  if (value.kind != YamlValue::Kind::kList) {
    YamlValue word = value;
    word.text = value.text.substr(0, value.text.find(' '));
    ALLOT_ASSIGN(*schedule.mutable_kind(), readChoice(word, rule.choices, site));
    if (word.text == value.text) return schedule;
    // "oneHot reads=2"
    constexpr std::string_view kReads = " reads=";
    const std::string_view rest = std::string_view(value.text).substr(word.text.size());
    uint32_t reads = 0;
    const auto read = std::from_chars(rest.data() + std::min(rest.size(), kReads.size()),
                                      rest.data() + rest.size(), reads);
    const bool is_right = kindOf(schedule) == ScheduleKind::kOneHot && rest.starts_with(kReads) &&
                          read.ec == std::errc() && read.ptr == rest.data() + rest.size() &&
                          reads <= kMaxBudget;
    if (!is_right) {
      return site.refuse(doubleQuoted(value.text) +
                         ": only oneHot takes a parameter, the reads of the layer that is cut, as "
                         "in oneHot reads=0");
    }
    if (reads != 1) schedule.set_reads(reads);
    return schedule;
  }
  schedule.set_kind(std::string(wordOf(ScheduleKind::kExplicit)));
  if (value.items.empty() || value.items.size() > kMaxScheduleEntries) {
    return site.refuse("has " + std::to_string(value.items.size()) +
                       " entries; write one for each layer, 1.." +
                       std::to_string(kMaxScheduleEntries));
  }
  uint64_t total = 0;
  for (size_t i = 0; i < value.items.size(); ++i) {
    YamlValue entry = value.items[i];
    entry.style = YamlValue::Style::kEither;  // a cluster leaves their type to this reader
    ALLOT_ASSIGN(const uint64_t samples, readInteger(entry, 0, kMaxBudget, site.at(i)));
    schedule.add_samples(static_cast<uint32_t>(samples));
    total += samples;
  }
  if (total < 1 || total > kMaxBudget) {
    return site.refuse("sums to " + std::to_string(total) + ", which is out of range 1.." +
                       std::to_string(kMaxBudget));
  }
  return schedule;
}

// ---- values of spec.cluster ----

bool isShaped(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

Result<bool> readBoolean(const YamlValue& value, const Site& site) {
  const bool yes = value.text == "true";
  if (value.kind != YamlValue::Kind::kScalar || !(yes || value.text == "false")) {
    return wrongType(site, value, "true or false");
  }
  if (value.style == YamlValue::Style::kQuoted) {
    return site.refuse(described(value) + " is a text to Kubernetes; write " + value.text +
                       " without quotes");
  }
  return yes;
}

Result<std::string> readQuantity(const YamlValue& value, const Site& site) {
  constexpr size_t kLongest = 32;
  if (value.kind != YamlValue::Kind::kScalar || value.text.size() > kLongest ||
      !isShaped(value.text, kQuantityPattern)) {
    return wrongType(site, value, "a quantity, as in 40Gi or 500m");
  }
  const bool digits = value.text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && value.style != YamlValue::Style::kQuoted) ALLOT_TRY(checkZeros(value.text, site));
  if (!digits && !notTextToKubernetes(value).empty()) {
    return site.refuse(value.text +
                       " is a number to Kubernetes, which takes whole ones here; "
                       "write \"" +
                       value.text + "\"");
  }
  return value.text;
}

Result<v1::KeyValue> readEntry(const SpecRule& rule, const std::string& key, const YamlValue& value,
                               const Site& site) {
  v1::KeyValue entry;
  entry.set_key(key);
  if (key.size() > kLongestLabelKey || !isShaped(key, kLabelKeyPattern)) {
    return site.refuse(doubleQuoted(key) + " is no name of a label or resource");
  }
  const Site here = site.under(escaped(key));
  if (rule.type == SpecType::kQuantities) {
    ALLOT_ASSIGN(*entry.mutable_value(), readQuantity(value, here));
    return entry;
  }
  if (value.kind != YamlValue::Kind::kScalar || value.text.size() > 63 ||
      !isShaped(value.text, kLabelValuePattern)) {
    return wrongType(here, value, "a label's value: 0..63 letters, digits and inner - _ .");
  }
  ALLOT_ASSIGN(*entry.mutable_value(), readString(value, here));
  return entry;
}

Status readEntries(const SpecRule& rule, const YamlValue& value, const Site& site,
                   const SpecField& target, Mistakes* mistakes) {
  if (value.kind != YamlValue::Kind::kMap) {
    return wrongType(site, value, "a section (keys with values)");
  }
  if (value.items.size() > kMaxListEntries) {
    return site.refuse("has " + std::to_string(value.items.size()) + " entries, more than " +
                       std::to_string(kMaxListEntries));
  }
  for (size_t i = 0; i < value.items.size(); ++i) {
    v1::KeyValue entry;
    if (!mistakes->pass(readEntry(rule, value.keys[i], value.items[i], site), &entry)) continue;
    target.message->GetReflection()->AddMessage(target.message, target.field)->CopyFrom(entry);
  }
  return {};
}

Result<v1::Toleration> readToleration(const YamlValue& value, const Site& site) {
  if (value.kind != YamlValue::Kind::kMap) {
    return wrongType(site, value, "a section (keys with values)");
  }
  static const std::vector<std::string> keys = {"key", "operator", "value", "effect",
                                                "tolerationSeconds"};
  v1::Toleration toleration;
  for (size_t i = 0; i < value.items.size(); ++i) {
    const std::string& key = value.keys[i];
    const YamlValue& item = value.items[i];
    const Site here = site.under(escaped(key));
    if (key == "operator") {
      ALLOT_ASSIGN(*toleration.mutable_operator_(), readChoice(item, tolerationOperators(), here));
    } else if (key == "effect") {
      ALLOT_ASSIGN(*toleration.mutable_effect(), readChoice(item, tolerationEffects(), here));
    } else if (key == "tolerationSeconds") {
      ALLOT_ASSIGN(const uint64_t seconds, readInteger(item, 0, kMostSeconds, here));
      toleration.set_toleration_seconds(static_cast<uint32_t>(seconds));
    } else if (key == "key" || key == "value") {
      ALLOT_ASSIGN(const std::string text, readText(item, here, 316));
      if (!isShaped(text, key == "key" ? kLabelKeyPattern : kLabelValuePattern)) {
        return here.refuse(doubleQuoted(text) + " is no " + key + " of a taint");
      }
      *(key == "key" ? toleration.mutable_key() : toleration.mutable_value()) = text;
    } else {
      return here.refuse("unknown key; known here: " + joined(keys));
    }
  }
  // As an API server has it of a pod.
  const bool exists = toleration.operator_() == "Exists";
  if (toleration.key().empty() && !exists) {
    return site.refuse("has no key; name the taint's, or write operator: Exists for every taint");
  }
  if (exists && !toleration.value().empty()) {
    return site.refuse("operator Exists takes no value; remove it, or write operator: Equal");
  }
  if (toleration.has_toleration_seconds() && toleration.effect() != "NoExecute") {
    return site.refuse("tolerationSeconds are for effect NoExecute; write that, or remove them");
  }
  return toleration;
}

// ---- fields ----

// Adds one entry to a repeated field. Returns a text by which repetitions are found.
Result<std::string> addEntry(const SpecRule& rule, const YamlValue& value, const Site& site,
                             const SpecField& target) {
  const auto* reflection = target.message->GetReflection();
  if (rule.type == SpecType::kIntegers) {
    ALLOT_ASSIGN(const uint64_t number, readBudget(value, rule, site));
    reflection->AddUInt32(target.message, target.field, static_cast<uint32_t>(number));
    return std::to_string(number);
  }
  if (rule.type == SpecType::kTexts) {
    ALLOT_ASSIGN(const std::string text, readText(value, site));
    reflection->AddString(target.message, target.field, text);
    return text;
  }
  if (rule.type == SpecType::kMeasures) {
    ALLOT_ASSIGN(const MeasureOptions options, readMeasure(rule, value, site));
    reflection->AddString(target.message, target.field, measureText(options));
    return std::string(wordOf(options.measure));  // a measure may be listed once
  }
  if (rule.type == SpecType::kMethods) {
    ALLOT_ASSIGN(const std::string method, readMethod(rule, value, site));
    reflection->AddString(target.message, target.field, method);
    return method;
  }
  if (rule.type == SpecType::kTolerations) {
    ALLOT_ASSIGN(const v1::Toleration toleration, readToleration(value, site));
    reflection->AddMessage(target.message, target.field)->CopyFrom(toleration);
    return toleration.SerializeAsString();
  }
  ALLOT_ASSIGN(const v1::Schedule schedule, readSchedule(value, rule, site));
  reflection->AddMessage(target.message, target.field)->CopyFrom(schedule);
  return schedule.SerializeAsString();
}

Status readList(const SpecRule& rule, const YamlValue& value, const Site& site,
                const SpecField& target, Mistakes* mistakes) {
  if (value.kind != YamlValue::Kind::kList) return wrongType(site, value, "a list, as in [a, b]");
  if (value.items.empty() && rule.may_be_empty) return {};
  if (value.items.empty()) return site.refuse("the list is empty; write at least one entry");
  if (value.items.size() > kMaxListEntries) {
    return site.refuse("has " + std::to_string(value.items.size()) + " entries, more than " +
                       std::to_string(kMaxListEntries));
  }
  std::unordered_set<std::string> seen;
  for (size_t i = 0; i < value.items.size(); ++i) {
    const Site entry = site.at(i);
    std::string text;
    if (!mistakes->pass(addEntry(rule, value.items[i], entry, target), &text)) continue;
    if (!seen.insert(std::move(text)).second) {
      mistakes->pass(entry.refuse("the list has this entry already; remove one"));
    }
  }
  return {};
}

Status readScalar(const SpecRule& rule, const YamlValue& value, const Site& site,
                  const SpecField& target) {
  Message* message = target.message;
  const auto* reflection = message->GetReflection();
  switch (rule.type) {
    case SpecType::kInteger: {
      ALLOT_ASSIGN(const uint64_t number, readBudget(value, rule, site));
      if (target.field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
        reflection->SetUInt64(message, target.field, number);
      } else {
        reflection->SetUInt32(message, target.field, static_cast<uint32_t>(number));
      }
      return {};
    }
    case SpecType::kNumber: {
      ALLOT_ASSIGN(const double number, readNumber(value, rule, site));
      reflection->SetDouble(message, target.field, number);
      return {};
    }
    case SpecType::kText:
    case SpecType::kChoice:
    case SpecType::kMethod: {
      if (rule.may_be_empty && value.kind == YamlValue::Kind::kScalar && value.text.empty()) {
        return {};  // an unset field is the empty text
      }
      ALLOT_ASSIGN(const std::string text,
                   rule.type == SpecType::kText     ? readText(value, site, rule.most_bytes)
                   : rule.type == SpecType::kMethod ? readMethod(rule, value, site)
                                                    : readChoice(value, rule.choices, site));
      if (!rule.pattern.empty() && !isShaped(text, rule.pattern)) {
        return site.refuse(doubleQuoted(text) + " is not " + rule.allowed);
      }
      reflection->SetString(message, target.field, text);
      return {};
    }
    case SpecType::kBoolean: {
      ALLOT_ASSIGN(const bool yes, readBoolean(value, site));
      reflection->SetBool(message, target.field, yes);
      return {};
    }
    default: {
      ALLOT_ASSIGN(const std::string text, readQuantity(value, site));
      reflection->SetString(message, target.field, text);
      return {};
    }
  }
}

}  // namespace

std::string didYouMean(const std::string& candidate) {
  return candidate.empty() ? "" : " (did you mean " + candidate + "?)";
}

std::string described(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "nothing";
    case YamlValue::Kind::kScalar:
      return doubleQuoted(value.text);
    case YamlValue::Kind::kList:
      return "a list";
    case YamlValue::Kind::kMap:
      return "a section";
  }
  return "";
}

tl::unexpected<Error> wrongType(const Site& site, const YamlValue& value, const char* wanted) {
  if (value.kind == YamlValue::Kind::kNull) {
    return site.refuse(std::string("has no value; write ") + wanted + " or remove the key");
  }
  return site.refuse(described(value) + " is not " + wanted);
}

bool isShare(const YamlValue& value) {
  return value.kind == YamlValue::Kind::kScalar && value.text.size() < 8 &&
         isShaped(value.text, kSharePattern);
}

Result<std::string> readString(const YamlValue& value, const Site& site) {
  if (value.kind != YamlValue::Kind::kScalar) return wrongType(site, value, "a string");
  const std::string type = notTextToKubernetes(value);
  if (type.empty()) return value.text;
  return site.refuse(value.text + " is " + type + " to Kubernetes; write \"" + value.text + "\"");
}

bool readField(const SpecRule& rule, const YamlValue& value, const Site& site,
               const SpecField& target, Mistakes* mistakes) {
  const size_t before = mistakes->count();
  if (rule.type == SpecType::kQuantities || rule.type == SpecType::kLabels) {
    mistakes->pass(readEntries(rule, value, site, target, mistakes));
  } else if (target.field->is_repeated()) {
    mistakes->pass(readList(rule, value, site, target, mistakes));
  } else {
    mistakes->pass(readScalar(rule, value, site, target));
  }
  if (mistakes->count() == before) return true;
  target.message->GetReflection()->ClearField(target.message, target.field);
  return false;
}

bool Mistakes::pass(const Status& done, std::string doubtful) {
  if (done) return true;
  const std::string& sentence = done.error().message;
  if (doubtful.empty()) {
    doubtful = "spec";  // of an error of --set
    if (sentence.starts_with(place_ + ": ")) {
      doubtful = sentence.substr(place_.size() + 2);
      const size_t dot = doubtful.find('.');
      doubtful.resize(std::min(doubtful.find_first_of(".:", dot + 1), doubtful.size()));
    }
  }
  doubtful_.push_back(std::move(doubtful));
  sentences_.push_back(sentence);
  return false;
}

void Mistakes::passJoined(const Status& done) {
  if (done) return;
  for (const std::string& section : doubtful_) {
    if (done.error().message.find(section) != std::string::npos) return;
  }
  pass(done);
}

std::vector<std::string> Mistakes::sentences(const YamlValue& root) const {
  std::vector<std::string> all = sentences_;
  all.resize(std::min(all.size(), kMost));
  for (std::string& sentence : all) {
    const std::string start = place_ + ": ";
    if (!sentence.starts_with(start)) continue;
    const size_t end = std::min(sentence.find(": ", start.size()), sentence.size());
    const size_t line =
        lineOf(root, std::string_view(sentence).substr(start.size(), end - start.size()));
    if (line > 0) sentence.insert(place_.size(), ":" + std::to_string(line));
  }
  if (sentences_.size() > kMost) all.push_back(place_ + ": has more mistakes; mend these first");
  return all;
}

const YamlValue* findPath(const YamlValue& root, const std::string& path) {
  const YamlValue* value = &root;
  for (size_t from = 0; value != nullptr && from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    value = value->find(std::string_view(path).substr(from, dot - from));
    from = dot + 1;
  }
  return value;
}

}  // namespace allot
