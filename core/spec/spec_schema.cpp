#include "core/spec/spec_schema.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>

#include "core/spec/spec.h"
#include "core/spec/spec_keys.h"

namespace allot {
namespace {

using google::protobuf::FieldDescriptor;

bool isUnset(const SpecField& at) {
  const auto* reflection = at.message->GetReflection();
  return at.field->is_repeated() ? reflection->FieldSize(*at.message, at.field) == 0
                                 : !reflection->HasField(*at.message, at.field);
}

// What absence meant, where that is not what "" or 0 means.
struct Befores {
  Befores() {
    for (const SpecRule& rule : specRules()) {
      if (rule.since == 1) continue;
      const SpecField at = fieldOf(rule, values);
      // A row of the table that cannot be read leaves its key as it is; a test reads them all.
      (void)readRule(rule, rule.before, at);
      if (!isUnset(at)) rules.push_back(&rule);
    }
  }
  std::vector<const SpecRule*> rules;
  v1::Spec values;
};

const Befores& befores() {
  static const Befores all;
  return all;
}

bool isAbsent(const SpecRule& rule, v1::Spec& spec) {
  if (rule.path.starts_with("spec.update.") && !spec.has_update()) return false;
  return isUnset(fieldOf(rule, spec));
}

}  // namespace

void complete(v1::Experiment* experiment) {
  v1::Spec& spec = *experiment->mutable_spec();
  for (const SpecRule* rule : befores().rules) {
    if (!isAbsent(*rule, spec)) continue;
    v1::Spec values = befores().values;
    const SpecField from = fieldOf(*rule, values);
    const SpecField to = fieldOf(*rule, spec);
    to.message->GetReflection()->SwapFields(to.message, from.message, {to.field});
  }
}

uint32_t schemaOf(const v1::Experiment& stored) {
  v1::Spec spec = stored.spec();  // isAbsent makes sections
  uint32_t schema = kSpecSchema;
  for (const SpecRule* rule : befores().rules) {
    if (isAbsent(*rule, spec)) schema = std::min(schema, rule->since - 1);
  }
  return schema;
}

v1::Experiment asOfSchema(v1::Experiment experiment, uint32_t schema) {
  v1::Spec& spec = *experiment.mutable_spec();
  const auto* reflection = spec.GetReflection();
  for (const SpecRule& rule : specRules()) {
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
    for (const SpecRule& rule : specRules()) {
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
  if (schema <= kSpecSchema) return {};
  return badInput(what + " was created by a newer build" + (build.empty() ? "" : ", " + build) +
                  ": its experiment has keys of schema " + std::to_string(schema) +
                  " and this build knows those up to " + std::to_string(kSpecSchema) + "; use " +
                  (build.empty() ? "that build" : "that one") + " or a later one");
}

}  // namespace allot
