#include "core/spec/spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <unordered_set>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec_keys.h"
#include "core/spec/spec_learner.h"
#include "core/spec/spec_task.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxName = 50;
constexpr size_t kMaxText = 4096;  // of a method or an entry of a list

// Where a value stands, for messages.
struct Site {
  std::string place;  // the file
  std::string path;   // "spec.task.tasks[1]"
  // What methods there leave out.
  kernels::MethodDefaults defaults = kernels::MethodDefaults::kSecond;

  tl::unexpected<Error> refuse(const std::string& what) const {
    return badInput(place + ": " + path + ": " + what);
  }
  Site under(const std::string& key) const {
    return {place, path.empty() ? key : path + "." + key, defaults};
  }
  Site at(size_t index) const {
    return {place, path + "[" + std::to_string(index) + "]", defaults};
  }
};

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

// `wanted`: "an integer", "a list".
tl::unexpected<Error> wrongType(const Site& site, const YamlValue& value, const char* wanted) {
  if (value.kind == YamlValue::Kind::kNull) {
    return site.refuse(std::string("has no value; write ") + wanted + " or remove the key");
  }
  return site.refuse(described(value) + " is not " + wanted);
}

// ---- single values ----

Result<uint64_t> readInteger(const YamlValue& value, uint64_t low, uint64_t high,
                             const Site& site) {
  const std::string& text = value.text;
  const size_t sign = text.size() > 1 && text[0] == '-' ? 1 : 0;
  if (value.kind != YamlValue::Kind::kScalar || text.empty() ||
      text.find_first_not_of("0123456789", sign) != std::string::npos) {
    return wrongType(site, value, "an integer");
  }
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
  const NumberRange& range = rule.number;
  const bool below = range.above_low ? number <= range.low : number < range.low;
  if (parsed.ec != std::errc() || below || (range.high && number > *range.high)) {
    return site.refuse(escaped(text) + " is out of range " + rangeText(rule));
  }
  return number + 0.0;  // -0 becomes 0: equal files have equal bytes
}

Result<std::string> readText(const YamlValue& value, const Site& site, size_t most = kMaxText) {
  if (value.kind != YamlValue::Kind::kScalar) return wrongType(site, value, "a string");
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
  if (value.kind != YamlValue::Kind::kScalar) return wrongType(site, value, "a string");
  for (const std::string& choice : choices) {
    if (value.text == choice) return choice;
  }
  return site.refuse(doubleQuoted(value.text) + " is not one of " + joined(choices) +
                     didYouMean(nearest(value.text, choices)));
}

// The shortest text of the same method by the file's defaults: equal methods, equal files.
Result<std::string> readMethod(const SpecRule& rule, const YamlValue& value, const Site& site) {
  ALLOT_ASSIGN(const std::string text, readText(value, site));
  kernels::MethodOptions options;
  if (const auto wrong = kernels::parseMethod(text, &options, site.defaults, rule.phase)) {
    const auto& names = kernels::methodNames(rule.phase);
    const std::string name = text.substr(0, text.find(' '));
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    return site.refuse(doubleQuoted(text) + ": " + *wrong +
                       (known ? "" : didYouMean(nearest(name, {names.begin(), names.end()}))));
  }
  return kernels::methodText(options, site.defaults);
}

Result<v1::Schedule> readSchedule(const YamlValue& value, const SpecRule& rule, const Site& site) {
  v1::Schedule schedule;
  if (value.kind != YamlValue::Kind::kList) {
    ALLOT_ASSIGN(*schedule.mutable_kind(), readChoice(value, rule.choices, site));
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
    ALLOT_ASSIGN(const uint64_t samples, readInteger(value.items[i], 0, kMaxBudget, site.at(i)));
    schedule.add_samples(static_cast<uint32_t>(samples));
    total += samples;
  }
  if (total < 1 || total > kMaxBudget) {
    return site.refuse("sums to " + std::to_string(total) + ", which is out of range 1.." +
                       std::to_string(kMaxBudget));
  }
  return schedule;
}

// ---- fields ----

// Adds one entry to a repeated field; returns its canonical text, to find repetitions.
Result<std::string> addEntry(const SpecRule& rule, const YamlValue& value, const Site& site,
                             const SpecField& target) {
  const auto* reflection = target.message->GetReflection();
  if (rule.type == SpecType::kIntegers) {
    ALLOT_ASSIGN(const uint64_t number, readInteger(value, rule.low, rule.high, site));
    reflection->AddUInt32(target.message, target.field, static_cast<uint32_t>(number));
    return std::to_string(number);
  }
  if (rule.type == SpecType::kTexts) {
    ALLOT_ASSIGN(const std::string text, readText(value, site));
    reflection->AddString(target.message, target.field, text);
    return text;
  }
  if (rule.type == SpecType::kChoices) {
    ALLOT_ASSIGN(const std::string choice, readChoice(value, rule.choices, site));
    reflection->AddString(target.message, target.field, choice);
    return choice;
  }
  if (rule.type == SpecType::kMethods) {
    ALLOT_ASSIGN(const std::string method, readMethod(rule, value, site));
    reflection->AddString(target.message, target.field, method);
    return method;
  }
  ALLOT_ASSIGN(const v1::Schedule schedule, readSchedule(value, rule, site));
  reflection->AddMessage(target.message, target.field)->CopyFrom(schedule);
  return schedule.SerializeAsString();
}

Status readList(const SpecRule& rule, const YamlValue& value, const Site& site,
                const SpecField& target) {
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
    ALLOT_ASSIGN(std::string text, addEntry(rule, value.items[i], entry, target));
    if (!seen.insert(std::move(text)).second) {
      return entry.refuse("the list has this entry already; remove one");
    }
  }
  return {};
}

Status readField(const SpecRule& rule, const YamlValue& value, const Site& site,
                 const SpecField& target) {
  Message* message = target.message;
  const auto* reflection = message->GetReflection();
  switch (rule.type) {
    case SpecType::kInteger: {
      ALLOT_ASSIGN(const uint64_t number, readInteger(value, rule.low, rule.high, site));
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
      reflection->SetString(message, target.field, text);
      return {};
    }
    default:
      return readList(rule, value, site, target);
  }
}

// ---- the whole file ----

tl::unexpected<Error> unknownKey(const Site& parent, const std::string& key) {
  const Site site = parent.under(escaped(key));
  const std::vector<std::string> known = knownKeys(parent.path);
  if (known.empty()) {
    return site.refuse("unknown key; " + parent.path + " is a value, not a section");
  }
  if (const std::string near = nearest(key, known); !near.empty()) {
    return site.refuse("unknown key" + didYouMean(near));
  }
  for (const SpecRule& rule : specRules()) {
    if (rule.path.substr(rule.path.rfind('.') + 1) != key) continue;
    return site.refuse("unknown key" + didYouMean(rule.path));
  }
  return site.refuse("unknown key; known here: " + joined(known));
}

// Refuses unknown keys in `section` and below.
Status checkKeys(const YamlValue& section, const Site& site) {
  if (section.kind != YamlValue::Kind::kMap) {
    return wrongType(site, section, "a section (keys with values)");
  }
  const std::vector<std::string> known = knownKeys(site.path);
  for (size_t i = 0; i < section.keys.size(); ++i) {
    const std::string& key = section.keys[i];
    if (std::find(known.begin(), known.end(), key) == known.end()) return unknownKey(site, key);
    const Site child = site.under(key);
    if (!knownKeys(child.path).empty()) ALLOT_TRY(checkKeys(section.items[i], child));
  }
  return {};
}

Status checkConstant(const YamlValue& root, const char* key, const std::string& wanted,
                     const Site& site) {
  const YamlValue* value = root.find(key);
  if (value == nullptr) return site.under(key).refuse("required, but missing; write " + wanted);
  if (value->kind == YamlValue::Kind::kScalar && value->text == wanted) return {};
  return site.under(key).refuse(described(*value) + " is not " + wanted);
}

Result<std::string> readName(const YamlValue& root, const Site& site) {
  const Site name_site = site.under("metadata").under("name");
  const YamlValue* metadata = root.find("metadata");
  const YamlValue* value = metadata == nullptr ? nullptr : metadata->find("name");
  if (value == nullptr) return name_site.refuse("required, but missing; give the run a name");
  if (value->kind != YamlValue::Kind::kScalar) return wrongType(name_site, *value, "a string");
  const std::string& name = value->text;
  const char* const letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (name.empty() || name.size() > kMaxName || name.front() == '-' || name.back() == '-' ||
      name.find_first_not_of(letters) != std::string::npos) {
    return name_site.refuse(doubleQuoted(name) +
                            " is not a name of 1..50 lower-case letters, digits and inner hyphens");
  }
  return name;
}

// The value at a dotted path; null if a key on the way is missing.
const YamlValue* findPath(const YamlValue& root, const std::string& path) {
  const YamlValue* value = &root;
  for (size_t from = 0; value != nullptr && from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    value = value->find(std::string_view(path).substr(from, dot - from));
    from = dot + 1;
  }
  return value;
}

Status readSpec(const YamlValue& root, const std::string& place, uint32_t schema, v1::Spec& spec) {
  const bool updates = findPath(root, "spec.update") != nullptr;
  for (const SpecRule& rule : specRules()) {
    const bool of_update = rule.path.compare(0, 12, "spec.update.") == 0;
    if (of_update && !updates) continue;
    const SpecField target = fieldOf(rule, spec);
    const Site site{place, rule.path, methodDefaultsOf(spec.attention())};
    if (const YamlValue* given = findPath(root, rule.path)) {
      ALLOT_TRY(readField(rule, *given, site, target));
    } else if (rule.since > schema) {
      ALLOT_TRY(readRule(rule, rule.before, target));
    } else if (rule.when_missing == SpecDefault::kRequired) {
      const std::string allowed = rangeText(rule);
      return site.refuse("required, but missing; allowed: " + allowed);
    } else if (rule.when_missing == SpecDefault::kValue) {
      ALLOT_TRY(readRule(rule, rule.default_value, target));
    }
  }
  return {};
}

// How schedules are learned, where the file leaves it open.
Status deriveLearning(const YamlValue& root, const std::string& place, v1::Spec& spec) {
  v1::Policy& policy = *spec.mutable_policy();
  if (policy.total_budget() == 0) {
    if (policy.total_budgets().empty()) {
      return Site{place, "spec.policy.totalBudget"}.refuse("required, but missing; allowed: 1.." +
                                                           std::to_string(kMaxBudget));
    }
    policy.set_total_budget(policy.total_budgets(0));
  }
  if (spec.has_update() && spec.update().learner().empty()) {
    const auto given = [&](const char* key) {
      return findPath(root, std::string("spec.update.") + key) != nullptr;
    };
    const bool of_gradients =
        given("optimizer") || given("learningRate") || given("baseline") || given("entropyBonus");
    spec.mutable_update()->set_learner(
        std::string(wordOf(of_gradients ? Learner::kReinforce : Learner::kAdditive)));
  }
  deriveSteps(spec);
  if (spec.rollout().episodes_per_question_set() == 0) {
    const Learner learner = learnerOf(spec.update());
    const bool alone = !spec.has_update() || learner == Learner::kSanta ||
                       (learner == Learner::kReinforce && policy.total_budgets_size() <= 1 &&
                        granularityOf(policy) == Granularity::kLayer);
    const auto budgets = static_cast<uint32_t>(totalBudgets(policy).size());
    const uint32_t each = (spec.update().episodes_per_update() + budgets - 1) / budgets;
    spec.mutable_rollout()->set_episodes_per_question_set(
        alone ? 1 : budgets * std::max(kLeastEpisodesOfSet, each));
  }
  return {};
}

// Defaults that follow from other keys.
void deriveDefaults(v1::Spec& spec) {
  deriveTaskDefaults(*spec.mutable_task());
  v1::Evaluation& evaluation = *spec.mutable_evaluation();
  if (evaluation.budgets().empty()) {
    for (const uint32_t total : totalBudgets(spec.policy())) evaluation.add_budgets(total);
  }
  if (evaluation.schedules().empty()) {
    const auto add = [&](ScheduleKind kind) {
      evaluation.add_schedules()->set_kind(std::string(wordOf(kind)));
    };
    add(ScheduleKind::kUniform);
    if (spec.has_update()) add(ScheduleKind::kLearned);
  }
  if (evaluation.methods().empty()) {
    evaluation.add_methods("dense");
    if (spec.attention().decode() != "dense") evaluation.add_methods(spec.attention().decode());
  }
  if (evaluation.prefills().empty()) evaluation.add_prefills(spec.attention().prefill());
  if (evaluation.chunk_questions() == 0) {
    evaluation.set_chunk_questions(std::clamp(
        kChunkTokens / std::max(1u, spec.task().context_tokens()), 1u, kMostChunkQuestions));
  }
}

// Rules that join two keys and a method.
Status checkMethods(const v1::Spec& spec, const std::string& place) {
  const auto draws = [](const std::string& text, kernels::Phase phase) {
    kernels::MethodOptions parsed;
    // It has been read before.
    kernels::parseMethod(text, &parsed, kernels::MethodDefaults::kSecond, phase);
    return kernels::usesBudget(parsed);
  };
  const std::string& decode = spec.attention().decode();
  if (spec.has_update() && !draws(decode, kernels::Phase::kDecode) &&
      !draws(spec.attention().prefill(), kernels::Phase::kPrefill)) {
    return Site{place, "spec.attention.decode"}.refuse(
        doubleQuoted(decode) +
        " reads what it needs, whatever its budget, so that there is no schedule to learn: choose "
        "a method that samples, or remove the section spec.update");
  }
  const std::string user = profileUser(spec);
  if (!user.empty() && spec.attention().prefill_profile().empty()) {
    return Site{place, user}.refuse(std::string("tau=profile needs ") + kProfileKey +
                                    ", which names no profile; make one with `allot calibrate "
                                    "sale`");
  }
  const v1::Evaluation& evaluation = spec.evaluation();
  const std::vector<Measure> measures = measuresOf(evaluation);
  for (size_t i = 0; i < measures.size(); ++i) {
    if (measures[i] == Measure::kAccuracy) continue;
    const std::string word(wordOf(measures[i]));
    const Site site = Site{place, "spec.evaluation.measures"}.at(i);
    if (evaluation.methods_size() == 1 && evaluation.methods(0) == "dense") {
      return site.refuse(
          word + " compares methods with dense, but spec.evaluation.methods has no other; add one");
    }
    if (protocolOf(spec.attention()) != Protocol::kA) {
      return site.refuse(
          word + " is measured where prompts are read whole: set spec.attention.protocol to A");
    }
  }
  return {};
}

// Question sets and budgets share the episodes of an update.
Status checkLearning(const v1::Spec& spec, const std::string& place) {
  for (const auto& problem : {learningRulesProblem(spec), santaProblem(spec)}) {
    if (problem) return Site{place, problem->path}.refuse(problem->what);
  }
  const auto totals = totalBudgets(spec.policy());
  if (std::find(totals.begin(), totals.end(), spec.policy().total_budget()) == totals.end()) {
    return Site{place, "spec.policy.totalBudget"}.refuse(
        std::to_string(spec.policy().total_budget()) +
        " is not one of spec.policy.totalBudgets; leave it out, and it is the first of them");
  }
  if (!learnsByBudgets(spec)) {
    if (!spec.has_update() || granularityOf(spec.policy()) == Granularity::kLayer) return {};
    return Site{place, "spec.rollout.episodesPerQuestionSet"}.refuse(
        "1 is for schedules of layers, and spec.policy.granularity is " +
        spec.policy().granularity() + ": leave it out, or set it to " +
        std::to_string(kLeastEpisodesOfSet) + " or more");
  }
  const uint32_t episodes = spec.rollout().episodes_per_question_set();
  const auto budgets = static_cast<uint32_t>(totals.size());
  if (episodes % budgets == 0 && episodes / budgets >= kLeastEpisodesOfSet) return {};
  const uint32_t least =
      std::max(kLeastEpisodesOfSet, (episodes + budgets - 1) / budgets) * budgets;
  return Site{place, "spec.rollout.episodesPerQuestionSet"}.refuse(
      std::to_string(episodes) + " episodes are not the same number, " +
      std::to_string(kLeastEpisodesOfSet) + " or more, for each of " + std::to_string(budgets) +
      (budgets == 1 ? " total budget" : " total budgets") +
      " (uniform, the best so far and others to compare); " +
      "set this, or spec.update.episodesPerUpdate, from which it follows, to " +
      std::to_string(least));
}

// Rules that join two keys.
Status checkTogether(const v1::Spec& spec, const std::string& place) {
  if (const auto problem = taskProblem(spec.task())) {
    return Site{place, problem->path}.refuse(problem->what);
  }
  if (spec.has_update() && spec.rollout().questions_per_episode() > spec.task().train_questions()) {
    return Site{place, "spec.rollout.questionsPerEpisode"}.refuse(
        std::to_string(spec.rollout().questions_per_episode()) +
        " is more than spec.task.trainQuestions, which is " +
        std::to_string(spec.task().train_questions()));
  }
  ALLOT_TRY(checkLearning(spec, place));
  for (int i = 0; i < spec.evaluation().schedules_size(); ++i) {
    const bool learned = kindOf(spec.evaluation().schedules(i)) == ScheduleKind::kLearned;
    if (!learned || spec.has_update()) continue;
    return Site{place, "spec.evaluation.schedules"}.at(i).refuse(
        "learned needs the section spec.update, which is missing; add it or remove learned");
  }
  return checkMethods(spec, place);
}

// Puts the value of one "spec.a.b=value" into the tree.
Status applyOverride(const std::string& text, YamlValue& root) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return badInput("--set " + doubleQuoted(text) +
                    ": write a path, '=' and a value, as in spec.policy.totalBudget=16");
  }
  const std::string path = text.substr(0, equals);
  const std::string place = "--set " + escaped(path);
  YamlValue* section = &root;
  Site site{place, ""};
  for (size_t from = 0;;) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const std::string key = path.substr(from, dot - from);
    const std::vector<std::string> known = knownKeys(site.path);
    if (std::find(known.begin(), known.end(), key) == known.end()) return unknownKey(site, key);
    site = site.under(key);
    if (dot == path.size()) {
      YamlValue value;
      value.kind = YamlValue::Kind::kScalar;  // nothing after '=' is the empty string
      if (equals + 1 < text.size()) {
        ALLOT_ASSIGN(value, parseYaml(text.substr(equals + 1), place));
      }
      section->put(key, std::move(value));
      return {};
    }
    if (section->find(key) == nullptr) {
      YamlValue empty;
      empty.kind = YamlValue::Kind::kMap;
      section->put(key, std::move(empty));
    }
    section = section->find(key);
    if (section->kind != YamlValue::Kind::kMap) {
      return wrongType(site, *section, "a section (keys with values)");
    }
    from = dot + 1;
  }
}

}  // namespace

Status readRule(const SpecRule& rule, const std::string& yaml, const SpecField& target) {
  ALLOT_ASSIGN(const YamlValue value, parseYaml(yaml, rule.path));
  return readField(rule, value, Site{"the table of keys", rule.path}, target);
}

Result<v1::Experiment> parseExperiment(const std::string& yaml, const std::string& place,
                                       const std::vector<std::string>& overrides) {
  ALLOT_ASSIGN(auto experiment, parseStoredExperiment(yaml, place, overrides));
  ALLOT_TRY(checkEffects(experiment, place));
  return experiment;
}

Result<v1::Experiment> parseStoredExperiment(const std::string& yaml, const std::string& place,
                                             const std::vector<std::string>& overrides,
                                             uint32_t schema) {
  ALLOT_ASSIGN(YamlValue root, parseYaml(yaml, place));
  const Site site{place, ""};
  if (root.kind != YamlValue::Kind::kMap) {
    return badInput(place + ": is not an experiment file; it must start with apiVersion and kind");
  }
  for (const std::string& text : overrides) ALLOT_TRY(applyOverride(text, root));
  ALLOT_TRY(checkConstant(root, "apiVersion", "allot.dev/v1alpha1", site));
  ALLOT_TRY(checkConstant(root, "kind", "Experiment", site));
  ALLOT_TRY(checkKeys(root, site));
  v1::Experiment experiment;
  ALLOT_ASSIGN(*experiment.mutable_name(), readName(root, site));
  if (root.find("spec") == nullptr) return site.under("spec").refuse("required, but missing");
  ALLOT_TRY(readSpec(root, place, schema, *experiment.mutable_spec()));
  ALLOT_TRY(deriveLearning(root, place, *experiment.mutable_spec()));
  deriveDefaults(*experiment.mutable_spec());
  ALLOT_TRY(readOwnProfile(*experiment.mutable_spec(), place));
  ALLOT_TRY(checkTogether(experiment.spec(), place));
  return experiment;
}

}  // namespace allot
