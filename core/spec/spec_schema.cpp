#include "core/spec/spec_schema.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>

#include "core/spec/spec_rules.h"

namespace allot {
namespace {

using google::protobuf::FieldDescriptor;

bool isUnset(const SpecField& at) {
  const auto* reflection = at.message->GetReflection();
  return at.field->is_repeated() ? reflection->FieldSize(*at.message, at.field) == 0
                                 : !reflection->HasField(*at.message, at.field);
}

bool isAbsent(const SpecRule& rule, v1::Spec& spec) {
  if (rule.path.starts_with("spec.update.") && !spec.has_update()) return false;
  return isUnset(fieldOf(rule, spec));
}

// Returns true if the message, or one in it outside lists, holds a field unknown to this build.
bool hasUnknownFields(const google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  if (!reflection->GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  return std::any_of(fields.begin(), fields.end(), [&](const FieldDescriptor* field) {
    return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated() &&
           hasUnknownFields(reflection->GetMessage(message, field));
  });
}

tl::unexpected<Error> ofDevelopment(const std::string& what, const std::string& build) {
  return badInput(what + " was created by a development build before 0.1.0" +
                  (build.empty() ? "" : ", " + build) +
                  ", which this build does not read: use that build, or make the run again from "
                  "its experiment file with this one");
}

}  // namespace

void complete(v1::Experiment* experiment, const std::vector<SpecRule>& rules) {
  v1::Spec& spec = *experiment->mutable_spec();
  for (const SpecRule& rule : rules) {
    if (rule.since == 1 || !isAbsent(rule, spec)) continue;
    // A test reads all rows, so that none fails here.
    (void)readRule(rule, rule.before, fieldOf(rule, spec));
  }
}

v1::Experiment asOfSchema(v1::Experiment experiment, uint32_t schema,
                          const std::vector<SpecRule>& rules) {
  v1::Spec& spec = *experiment.mutable_spec();
  const auto* reflection = spec.GetReflection();
  for (const SpecRule& rule : rules) {
    const bool in_section = rule.path.find('.') != rule.path.rfind('.');
    if (in_section || rule.since <= schema) continue;
    reflection->ClearField(&spec, fieldOf(rule, spec).field);
  }
  std::vector<const FieldDescriptor*> sections;
  reflection->ListFields(spec, &sections);
  for (const FieldDescriptor* section : sections) {
    if (section->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string prefix = "spec." + section->camelcase_name() + ".";
    bool known = false;
    for (const SpecRule& rule : rules) {
      if (!rule.path.starts_with(prefix)) continue;
      if (rule.since <= schema) {
        known = true;
        continue;
      }
      const SpecField at = fieldOf(rule, spec);
      at.message->GetReflection()->ClearField(at.message, at.field);
    }
    if (!known) reflection->ClearField(&spec, section);
  }
  return experiment;
}

Status checkSchema(uint32_t schema, const std::string& build, const std::string& what) {
  if (schema == 0 || (schema > kSpecSchema && schema <= kLastDevelopmentSchema)) {
    return ofDevelopment(what, build);
  }
  if (schema <= kSpecSchema) return {};
  return badInput(what + " was created by a newer build" + (build.empty() ? "" : ", " + build) +
                  ": its experiment has keys of schema " + std::to_string(schema) +
                  " and this build knows those up to " + std::to_string(kSpecSchema) + "; use " +
                  (build.empty() ? "that build" : "that one") + " or a later one");
}

Status checkSchema(uint32_t schema, const std::string& build, const std::string& what,
                   const v1::Experiment& stored) {
  ALLOT_TRY(checkSchema(schema, build, what));
  return hasUnknownFields(stored) ? ofDevelopment(what, build) : Status();
}

}  // namespace allot
