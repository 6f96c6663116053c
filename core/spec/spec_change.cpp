#include "core/spec/spec_change.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <charconv>

#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_schema.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the shortest decimal that reads back as the same double.
std::string decimalOf(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

std::string scheduleYaml(const v1::Schedule& schedule) {
  if (kindOf(schedule) != ScheduleKind::kExplicit) {
    const std::string reads =
        schedule.has_reads() ? " reads=" + std::to_string(schedule.reads()) : "";
    return doubleQuoted(schedule.kind() + reads);
  }
  std::string list;
  for (const uint32_t samples : schedule.samples()) {
    list += (list.empty() ? "" : ", ") + std::to_string(samples);
  }
  return "[" + list + "]";
}

// Returns the text in double quotes as YAML has it. The text has no control characters (readText).
std::string textYaml(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Returns an integer, or a total budget as a share if the policy has prices.
std::string numberYaml(const SpecRule& rule, const v1::Spec& spec, uint32_t value) {
  if (!rule.or_share || !hasPrices(spec.policy())) return std::to_string(value);
  return doubleQuoted(std::to_string(value) + " %");
}

std::string entryYaml(const SpecRule& rule, const v1::Spec& spec, const SpecField& at, int index) {
  const Message& message = *at.message;
  const FieldDescriptor* field = at.field;
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return numberYaml(rule, spec, reflection->GetRepeatedUInt32(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return textYaml(reflection->GetRepeatedString(message, field, index));
    default:
      return scheduleYaml(
          dynamic_cast<const v1::Schedule&>(reflection->GetRepeatedMessage(message, field, index)));
  }
}

std::string valueYaml(const SpecRule& rule, const v1::Spec& spec) {
  v1::Spec copy = spec;  // fieldOf makes the section
  const SpecField at = fieldOf(rule, copy);
  const Message& message = *at.message;
  const auto* reflection = message.GetReflection();
  if (at.field->is_repeated()) {
    std::string list;
    for (int i = 0; i < reflection->FieldSize(message, at.field); ++i) {
      list += (i == 0 ? "" : ", ") + entryYaml(rule, spec, at, i);
    }
    return "[" + list + "]";
  }
  switch (at.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return numberYaml(rule, spec, reflection->GetUInt32(message, at.field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return std::to_string(reflection->GetUInt64(message, at.field));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = reflection->GetDouble(message, at.field);
      return rule.number.or_empty && value == 0 ? "\"\"" : decimalOf(value);
    }
    default: {
      // A build that did not know the key left an optional one out.
      const bool is_missing = at.field->has_presence() && !reflection->HasField(message, at.field);
      const bool has_default = rule.when_missing == SpecDefault::kValue;
      return textYaml(is_missing && has_default ? rule.default_value
                                                : reflection->GetString(message, at.field));
    }
  }
}

bool isOfUpdate(const SpecRule& rule) { return rule.path.starts_with("spec.update."); }

constexpr char kFork[] = "begin another run from this one with `allot fork`";

// Returns why a setting that is not live cannot change, and the remedy.
std::string reasonFor(const std::string& path, const std::string& made) {
  if (path == "metadata.name")
    return "it names the run; give it back its name, or " + std::string(kFork);
  if (!made.empty()) return "it has " + made + " of the other value; " + kFork;
  return "it is not live; until the first result counts, edit the experiment file, and from then "
         "on " +
         std::string(kFork);
}

}  // namespace

std::string fixedSentence(const std::string& path) {
  return path + " cannot change in this run: " + reasonFor(path, "results");
}

std::vector<SpecChange> specChanges(const v1::Experiment& from, const v1::Experiment& to) {
  std::vector<SpecChange> changes;
  if (from.name() != to.name()) {
    changes.push_back({"metadata.name", textYaml(from.name()), textYaml(to.name())});
  }
  const bool learned = from.spec().has_update();
  const bool learns = to.spec().has_update();
  if (learned != learns) {
    changes.push_back(
        {"spec.update", learned ? "present" : "absent", learns ? "present" : "absent"});
  }
  for (const SpecRule& rule : specRules()) {
    if (isOfUpdate(rule) && (!learned || !learns)) continue;
    const std::string before = valueYaml(rule, from.spec());
    const std::string after = valueYaml(rule, to.spec());
    if (before != after) changes.push_back({rule.path, before, after, rule.live});
  }
  return changes;
}

std::vector<SpecChange> changesBeyond(uint32_t schema, const v1::Experiment& experiment,
                                      const std::vector<SpecRule>& rules) {
  v1::Experiment known = asOfSchema(experiment, schema, rules);
  complete(&known, rules);
  return specChanges(known, experiment);
}

Status checkLiveChanges(const v1::Experiment& from, const v1::Experiment& to, bool synchronous,
                        const std::string& made) {
  for (const SpecChange& change : specChanges(from, to)) {
    const std::string what = change.path + " cannot change from " + escaped(change.from) + " to " +
                             escaped(change.to) + " in this run: ";
    if (!change.live) return badInput(what + reasonFor(change.path, made));
    if (synchronous && change.path == "spec.update.episodesPerUpdate") {
      return badInput(what + "in a synchronous run the ticket tells the update; " + kFork);
    }
  }
  return {};
}

v1::Experiment mergeChanges(const v1::Experiment& in_force, const v1::Experiment& old_file,
                            const v1::Experiment& new_file) {
  v1::Experiment merged = in_force;
  if (old_file.name() != new_file.name()) merged.set_name(new_file.name());
  if (old_file.spec().has_update() != new_file.spec().has_update()) {
    merged.mutable_spec()->clear_update();
    if (new_file.spec().has_update()) {
      *merged.mutable_spec()->mutable_update() = new_file.spec().update();
    }
  }
  v1::Spec source = new_file.spec();
  for (const SpecRule& rule : specRules()) {
    if (isOfUpdate(rule) && !(merged.spec().has_update() && new_file.spec().has_update())) continue;
    if (valueYaml(rule, old_file.spec()) == valueYaml(rule, new_file.spec())) continue;
    const SpecField from = fieldOf(rule, source);
    const SpecField to = fieldOf(rule, *merged.mutable_spec());
    // Swapping works for any type, repeated or not.
    to.message->GetReflection()->SwapFields(to.message, from.message, {to.field});
  }
  return merged;
}

Result<v1::Experiment> withSettings(const v1::Experiment& experiment,
                                    const std::vector<std::string>& settings) {
  constexpr char kPlace[] = "the run's experiment";
  for (const std::string& setting : settings) {
    if (!setting.starts_with("spec.cluster")) continue;
    return badInput("--set " + escaped(setting) +
                    ": spec.cluster is no part of a run; change it in the experiment's file, and "
                    "render or apply that again");
  }
  ALLOT_ASSIGN(auto next, parseStoredExperiment(experimentYaml(experiment), kPlace, settings));
  // A run that was stored with a key without effect goes on; no other run gets one.
  if (checkEffects(experiment, kPlace)) ALLOT_TRY(checkEffects(next, kPlace));
  return next;
}

std::string experimentYaml(const v1::Experiment& experiment) {
  std::string yaml = "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: " +
                     textYaml(experiment.name()) + "}\nspec:\n";
  std::string section;
  for (const SpecRule& rule : specRules()) {
    if (isOfUpdate(rule) && !experiment.spec().has_update()) continue;
    const std::string path = rule.path.substr(sizeof("spec.") - 1);
    const size_t dot = path.find('.');
    const std::string value = valueYaml(rule, experiment.spec());
    if (dot == std::string::npos) {
      yaml += "  " + path + ": " + value + "\n";
      continue;
    }
    if (path.substr(0, dot) != section) {
      section = path.substr(0, dot);
      yaml += "  " + section + ":\n";
    }
    yaml += "    " + path.substr(dot + 1) + ": " + value + "\n";
  }
  return yaml;
}

}  // namespace allot
