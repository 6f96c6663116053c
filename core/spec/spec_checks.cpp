// The part of core/spec that looks at a whole experiment: its layers and its bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "core/digest.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_keys.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

template <typename Values, typename Value>
bool has(const Values& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// What keeps the accuracy that the goal is compared with from being measured; "" if nothing does.
std::string goalLacks(const v1::Spec& spec) {
  const v1::Evaluation& evaluation = spec.evaluation();
  const auto& schedules = evaluation.schedules();
  const uint32_t budget = spec.policy().total_budget();
  if (!spec.has_update()) return "the section spec.update is missing, so that nothing is learned";
  if (evaluation.every_updates() == 0) {
    return "spec.evaluation.everyUpdates is 0, so that only the last policy is evaluated";
  }
  if (std::none_of(schedules.begin(), schedules.end(), [](const v1::Schedule& schedule) {
        return kindOf(schedule) == ScheduleKind::kLearned;
      })) {
    return "spec.evaluation.schedules has no learned";
  }
  if (!has(evaluation.methods(), spec.attention().decode())) {
    return "spec.evaluation.methods has no " + spec.attention().decode();
  }
  if (!has(evaluation.budgets(), budget)) {
    return "spec.evaluation.budgets has no " + std::to_string(budget);
  }
  if (!has(measuresOf(evaluation), Measure::kAccuracy)) {
    return "spec.evaluation.measures has no accuracy";
  }
  return "";
}

// What a field of words holds.
std::vector<std::string> wordsIn(const SpecField& at) {
  const auto* reflection = at.message->GetReflection();
  if (!at.field->is_repeated()) return {reflection->GetString(*at.message, at.field)};
  std::vector<std::string> words;
  for (int i = 0; i < reflection->FieldSize(*at.message, at.field); ++i) {
    words.push_back(reflection->GetRepeatedString(*at.message, at.field, i));
  }
  return words;
}

}  // namespace

Status checkWords(const v1::Experiment& experiment, const std::string& place) {
  v1::Spec spec = experiment.spec();  // fieldOf makes sections
  for (const SpecRule& rule : specRules()) {
    if (rule.choices.empty()) continue;
    std::vector<std::string> words;
    if (rule.type == SpecType::kSchedules) {
      for (const auto& schedule : spec.evaluation().schedules()) words.push_back(schedule.kind());
      std::erase(words, wordOf(ScheduleKind::kExplicit));
    } else {
      words = wordsIn(fieldOf(rule, spec));
    }
    for (const std::string& word : words) {
      if (word.empty() || has(rule.choices, word)) continue;
      return badInput(place + ": " + rule.path + ": " + quoted(word) + " is not one of " +
                      joined(rule.choices) +
                      ", so that a newer build stored it: use that build or a later one");
    }
  }
  return {};
}

Status checkGoal(const v1::Experiment& experiment, const std::string& place) {
  const v1::Spec& spec = experiment.spec();
  if (!(spec.stop().goal() > 0)) return {};
  const std::string lacks = goalLacks(spec);
  if (lacks.empty()) return {};
  return badInput(
      place + ": spec.stop.goal: it cannot be reached: it is compared with the accuracy of " +
      "spec.attention.decode under the learned schedule at spec.policy.totalBudget, but " + lacks +
      "; mend that, or leave the goal empty");
}

Status checkAgainstLayers(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Spec& spec = experiment.spec();
  const std::string model = "the model has " + std::to_string(layers) + " layers";
  if (layers == 0) return badInput("the model has no layers");
  const uint64_t least = uint64_t{spec.policy().min_per_layer()} * layers;
  if (least > spec.policy().total_budget()) {
    return badInput("spec.policy.minPerLayer: " + std::to_string(spec.policy().min_per_layer()) +
                    " in each layer needs " + std::to_string(least) +
                    " draws, more than spec.policy.totalBudget, which is " +
                    std::to_string(spec.policy().total_budget()) + " (" + model + ")");
  }
  for (int i = 0; i < spec.evaluation().schedules_size(); ++i) {
    const v1::Schedule& schedule = spec.evaluation().schedules(i);
    const std::string path = "spec.evaluation.schedules[" + std::to_string(i) + "]: ";
    const ScheduleKind kind = kindOf(schedule);
    if (kind == ScheduleKind::kExplicit &&
        schedule.samples_size() != static_cast<int64_t>(layers)) {
      return badInput(path + "has " + std::to_string(schedule.samples_size()) + " entries, but " +
                      model + "; write one for each layer");
    }
    if (kind != ScheduleKind::kOneHot) continue;
    if (layers < 2) return badInput(path + "oneHot compares layers, but the model has only one");
    for (const uint32_t budget : spec.evaluation().budgets()) {
      if (budget >= layers) continue;
      return badInput(path + "oneHot needs at least one draw in each layer, but " + model +
                      " and spec.evaluation.budgets has " + std::to_string(budget));
    }
  }
  return {};
}

std::string canonicalBytes(const v1::Experiment& experiment) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    experiment.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string specDigest(const v1::Experiment& experiment) {
  return sha256Hex(canonicalBytes(experiment));
}

}  // namespace allot
