// The part of core/spec that checks whole experiments, and makes their bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "allot/kernels/method.h"
#include "core/digest.h"
#include "core/spec/choices.h"
#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/prices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_defaults.h"
#include "core/spec/spec_prices.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "core/spec/step_times.h"

namespace allot {
namespace {

template <typename Values, typename Value>
bool has(const Values& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns why the accuracy that the goal is compared with is not measured; "" if it is.
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
  if (!has(evaluation.prefills(), spec.attention().prefill())) {
    return "spec.evaluation.prefills has no " + spec.attention().prefill();
  }
  if (!has(evaluation.budgets(), budget)) {
    return "spec.evaluation.budgets has no " + std::to_string(budget);
  }
  if (!has(measuresOf(evaluation), Measure::kAccuracy)) {
    return "spec.evaluation.measures has no accuracy";
  }
  return "";
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

// Checks that a template is used if it is named (auto and none need not be), and that only a
// person's own prompts are taken as rendered.
Status checkChatTemplate(const v1::Spec& spec, const std::string& place) {
  const std::string& name = spec.model().chat_template();
  if (name.empty() || name == "auto" || name == "none") return {};
  const std::string key =
      place + ": spec.model.chatTemplate: " + doubleQuoted(name) + " has no effect: ";
  if (spec.task().suite() == "recall") {
    return badInput(key + "suite recall asks its model in plain text; remove the key");
  }
  if (name == "rendered" && spec.task().suite() != "jsonl") {
    return badInput(place + ": spec.model.chatTemplate: \"rendered\" is for suite jsonl, whose " +
                    "prompts may hold a model's turns; choose auto, none or a template");
  }
  if (spec.task().suite() == "ruler" && !spec.task().path().empty()) {
    return badInput(key +
                    "prompts of RULER's files are asked as its scripts wrote them, which put a "
                    "model's template around them if told to; remove the key");
  }
  return {};
}

// Checks that measured schedules have a measurement, and a measurement a method that it can tell
// from dense attention and training questions.
Status checkMeasured(const v1::Spec& spec, const std::string& place) {
  const auto& schedules = spec.evaluation().schedules();
  const bool measured = std::any_of(schedules.begin(), schedules.end(), [](const auto& schedule) {
    return kindOf(schedule) == ScheduleKind::kMeasured;
  });
  const std::string key = place + ": spec.policy.measureQuestions: ";
  if (spec.policy().measure_questions() == 0) {
    if (!measured) return {};
    return badInput(key +
                    "0 measures no layer, but spec.evaluation.schedules has measured; raise "
                    "it, or remove measured");
  }
  if (spec.task().train_questions() == 0) {
    return badInput(key +
                    "layers are measured on training questions, but "
                    "spec.task.trainQuestions is 0; raise it, or remove measured from "
                    "spec.evaluation.schedules");
  }
  kernels::MethodOptions decode;
  // Parsing succeeds: readMethod has parsed the text before.
  kernels::parseMethod(spec.attention().decode(), &decode);
  if (kernels::usesBudget(decode)) return {};
  return badInput(key + "spec.attention.decode, " + spec.attention().decode() +
                  ", reads what it needs, whatever its budget, so that there is nothing to "
                  "measure; choose a method with a budget, or 0 and no measured schedule");
}

// Checks that the sum of each explicit schedule, at which it is measured, is one of the budgets.
Status checkExplicit(const v1::Evaluation& evaluation, const std::string& place) {
  for (int i = 0; i < evaluation.schedules_size(); ++i) {
    const v1::Schedule& schedule = evaluation.schedules(i);
    if (kindOf(schedule) != ScheduleKind::kExplicit) continue;
    uint64_t sum = 0;
    for (const uint32_t samples : schedule.samples()) sum += samples;
    if (has(evaluation.budgets(), sum)) continue;
    std::string budgets;
    for (const uint32_t budget : evaluation.budgets()) {
      budgets += (budgets.empty() ? "" : ", ") + std::to_string(budget);
    }
    return badInput(place + ": spec.evaluation.schedules[" + std::to_string(i) + "]: sums to " +
                    std::to_string(sum) + ", at which it would be measured, but that is not in " +
                    "spec.evaluation.budgets, [" + budgets + "]; add it there, or change the list");
  }
  return {};
}

// Checks that answers: all has accuracy to measure. The default, wrong, needs none.
Status checkAnswers(const v1::Evaluation& evaluation, const std::string& place) {
  if (keptAnswersOf(evaluation) != KeptAnswers::kAll) return {};
  if (has(measuresOf(evaluation), Measure::kAccuracy)) return {};
  return badInput(place +
                  ": spec.evaluation.answers: all has no effect: spec.evaluation.measures has no "
                  "accuracy, without which nothing is answered; add it, or remove this key");
}

// Checks that repeats have accuracy to measure, and a method that draws or a temperature.
Status checkRepeats(const v1::Spec& spec, const std::string& place) {
  const v1::Evaluation& evaluation = spec.evaluation();
  if (repeatsOf(evaluation) == 1) return {};
  const std::string refused = place +
                              ": spec.evaluation.repeats: " + std::to_string(evaluation.repeats()) +
                              " has no effect: ";
  if (!has(measuresOf(evaluation), Measure::kAccuracy)) {
    return badInput(refused + "spec.evaluation.measures has no accuracy, and fidelity is not " +
                    "repeated; add it, or remove this key");
  }
  for (const std::string& prefill : evaluation.prefills()) {
    for (const std::string& method : evaluation.methods()) {
      if (repeatsOf(spec, prefill, method) > 1) return {};
    }
  }
  return badInput(refused + "no method of spec.evaluation.methods or prefills draws, and at " +
                  "spec.generation.temperature 0 every answer would be the same; name one that " +
                  "draws, or remove this key");
}

// Checks that tokens are drawn if their draw is restricted.
Status checkGeneration(const v1::Spec& spec, const std::string& place) {
  const v1::Generation& generation = spec.generation();
  if (generation.temperature() > 0) return {};
  const bool top_p = generation.top_p() > 0 && generation.top_p() < 1;
  if (!top_p && generation.top_k() == 0) return {};
  return badInput(place + ": spec.generation." + (top_p ? "topP" : "topK") +
                  ": has no effect: at spec.generation.temperature 0 the likeliest token is taken; "
                  "write a temperature, or remove this key");
}

// Checks that a granularity of heads has schedules to learn.
Status checkGranularity(const v1::Spec& spec, const std::string& place) {
  if (spec.has_update() || granularityOf(spec.policy()) == Granularity::kLayer) return {};
  return badInput(place + ": spec.policy.granularity: " + spec.policy().granularity() +
                  " has no effect: there is no section spec.update, and so nothing is learned; "
                  "remove this key");
}

Status checkProfileIsUsed(const v1::Spec& spec, const std::string& place) {
  if (spec.attention().prefill_profile().empty() || !profileUser(spec).empty()) return {};
  return badInput(place + ": " + kProfileKey +
                  ": has no effect: no prompt is read by sale tau=profile; name that in "
                  "spec.attention.prefill or spec.evaluation.prefills, or remove the key");
}

Status checkKvProfileIsUsed(const v1::Spec& spec, const std::string& place) {
  if (spec.model().kv_profile().empty() || kvDtypeOf(spec.model()) == KvDtype::kFp8) return {};
  return badInput(place + ": " + kKvProfile.key +
                  ": has no effect: keys and values are not kept in 8 bits; set "
                  "spec.model.kvDtype: fp8, or remove the key");
}

// Returns the texts of a string field, repeated or not.
std::vector<std::string> wordsIn(const SpecField& at) {
  const auto* reflection = at.message->GetReflection();
  if (!at.field->is_repeated()) return {reflection->GetString(*at.message, at.field)};
  std::vector<std::string> words;
  for (int i = 0; i < reflection->FieldSize(*at.message, at.field); ++i) {
    words.push_back(reflection->GetRepeatedString(*at.message, at.field, i));
  }
  return words;
}

// Checks that the name begins with no digit: names of Services may not before Kubernetes 1.36.
Status checkName(const v1::Experiment& experiment, const std::string& place) {
  const std::string& name = experiment.name();
  if (name.empty() || name[0] < '0' || name[0] > '9') return {};
  return badInput(place + ": metadata.name: " + doubleQuoted(name) +
                  " begins with a digit, which names of Services in a cluster must not; begin it "
                  "with a letter");
}

// Checks the entries of schedules by heads against the limits of results and of the surrogate.
Status checkEntries(const v1::Spec& spec, const ModelShape& shape) {
  const uint64_t entries = uint64_t{shape.layers} * entriesPerLayer(spec.policy(), shape);
  const std::string path = "spec.policy.granularity: " + spec.policy().granularity() + ": ";
  const std::string has = "the model's " + std::to_string(shape.layers) + " layers have " +
                          std::to_string(entries) + " of them";
  if (entries > kMaxScheduleEntries) {
    return badInput(path + has + ", and a schedule has at most " +
                    std::to_string(kMaxScheduleEntries) + " entries; choose a coarser one");
  }
  const Learner learner = learnerOf(spec.update());
  const bool models = spec.has_update() && learner == Learner::kAdditive;
  if (!models || entries <= kMaxModelledEntries) return {};
  return badInput(path + has + ", and spec.update.learner " + std::string(wordOf(learner)) +
                  " models at most " + std::to_string(kMaxModelledEntries) +
                  "; choose a coarser one, or another learner");
}

// Checks that each budget buys a schedule.
// Checks that times of steps leave a layer more than to be off or dense.
// Requires: checkPrices() accepts the experiment.
Status checkTimedReads(const v1::Spec& spec, const ModelShape& shape) {
  if (priceOf(spec.policy()) != Price::kTime) return {};
  v1::Spec all = spec;  // of any number of reads
  all.mutable_policy()->set_min_per_layer(0);
  for (const Action& action : priceListOf(all, shape)) {
    if (action.reads > 0 && action.reads < kAllRows) return {};
  }
  ALLOT_ASSIGN(const StepTimes times, parseStepTimes(spec.policy().step_times(), kStepTimesKey));
  return badInput(
      std::string(kStepTimesKey) + ": no number of 1, 2, 3, 4, 6, 8, 12, ... reads between " +
      std::to_string(times.of.front().first) + " and " + std::to_string(times.of.back().first) +
      " costs less than dense attention; measure others");
}

Status checkPriced(const v1::Spec& spec, const ModelShape& shape) {
  // A stored experiment has not come through the reader of files.
  ALLOT_TRY(checkPrices(spec, "the run's experiment"));
  if (priceOf(spec.policy()) == Price::kBytes && shape.head_dim == 0) {
    return badInput(
        "spec.policy.price: bytes needs the channels of the model's keys, which are not stored "
        "with it; begin the run anew");
  }
  ALLOT_TRY(checkTimedReads(spec, shape));
  const PriceList prices = priceListOf(spec, shape);
  const std::string model = " (the model has " + std::to_string(shape.layers) + " layers)";
  if (prices.empty()) {
    return badInput("spec.policy.minPerLayer: " + std::to_string(spec.policy().min_per_layer()) +
                    " reads in each layer " +
                    (priceOf(spec.policy()) == Price::kTime
                         ? "are more than any in spec.policy.stepTimes that cost less than dense "
                           "attention"
                         : "cost more than dense attention") +
                    model + "; lower it, or set spec.policy.price to reads");
  }
  const uint32_t least = leastPrice(prices) * shape.layers;
  for (const uint32_t total : totalBudgets(spec.policy())) {
    if (isAffordable(total, shape.layers, prices)) continue;
    return badInput("spec.policy.totalBudgets: " + budgetText(spec.policy(), total) +
                    " buys no schedule: the cheapest one costs " +
                    budgetText(spec.policy(), shareOf(least, shape.layers)) + model +
                    "; raise it, or lower spec.policy.minPerLayer");
  }
  return {};
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
    if (rule.type == SpecType::kMeasures) {  // parameters follow the name
      for (std::string& word : words) word.resize(std::min(word.find(' '), word.size()));
    }
    for (const std::string& word : words) {
      if (word.empty() || has(rule.choices, word)) continue;
      return badInput(place + ": " + rule.path + ": " + doubleQuoted(word) + " is not one of " +
                      joined(rule.choices) +
                      ", so that a newer build stored it: use that build or a later one");
    }
  }
  return {};
}

std::vector<Status> effectsOf(const v1::Experiment& experiment, const std::string& place) {
  const v1::Spec& spec = experiment.spec();
  const auto problem = idleStepProblem(spec);
  return {checkName(experiment, place),
          checkGoal(experiment, place),
          checkChatTemplate(spec, place),
          checkAnswers(spec.evaluation(), place),
          checkRepeats(spec, place),
          checkProfileIsUsed(spec, place),
          checkKvProfileIsUsed(spec, place),
          checkGeneration(spec, place),
          checkGranularity(spec, place),
          problem ? badInput(place + ": " + problem->path + ": " + problem->what) : Status(),
          checkExplicit(spec.evaluation(), place),
          checkMeasured(spec, place)};
}

Status checkEffects(const v1::Experiment& experiment, const std::string& place) {
  for (const Status& effect : effectsOf(experiment, place)) ALLOT_TRY(effect);
  return {};
}

Status checkEffects(const v1::Experiment& experiment, uint32_t layers) {
  const v1::Spec& spec = experiment.spec();
  // Prices are for checkAgainstModel().
  if (hasPrices(spec.policy())) return {};
  if (spec.policy().min_per_layer() == 0 || !spec.has_update()) return {};
  const uint64_t least = uint64_t{spec.policy().min_per_layer()} * layers;
  const std::string takes = std::to_string(spec.policy().min_per_layer()) +
                            " in each layer takes " + std::to_string(least) + " draws (the model " +
                            "has " + std::to_string(layers) + " layers)";
  if (least == spec.policy().total_budget()) {
    return badInput("spec.policy.minPerLayer: " + takes +
                    ", which is all of spec.policy.totalBudget, so that nothing is left to learn; "
                    "lower it or raise the budget");
  }
  const v1::Evaluation& evaluation = spec.evaluation();
  const auto& schedules = evaluation.schedules();
  const bool learned = std::any_of(schedules.begin(), schedules.end(), [](const auto& schedule) {
    return kindOf(schedule) == ScheduleKind::kLearned;
  });
  for (int i = 0; learned && i < evaluation.budgets_size(); ++i) {
    if (evaluation.budgets(i) >= least) continue;
    return badInput("spec.evaluation.budgets[" + std::to_string(i) + "]: the learned schedule " +
                    "cannot be measured at " + std::to_string(evaluation.budgets(i)) +
                    ": spec.policy.minPerLayer, " + takes + "; raise the one or lower the other");
  }
  return {};
}

Status checkAgainstModel(const v1::Experiment& experiment, const ModelShape& shape) {
  const v1::Spec& spec = experiment.spec();
  const uint32_t layers = shape.layers;
  const std::string model = "the model has " + std::to_string(layers) + " layers";
  if (layers == 0) return badInput("the model has no layers");
  const bool of_heads = granularityOf(spec.policy()) != Granularity::kLayer;
  if (of_heads) ALLOT_TRY(checkEntries(spec, shape));
  if (hasPrices(spec.policy())) return checkPriced(spec, shape);
  const uint64_t least = uint64_t{spec.policy().min_per_layer()} * layers;
  for (const uint32_t total : totalBudgets(spec.policy())) {
    if (least <= total) continue;
    return badInput("spec.policy.minPerLayer: " + std::to_string(spec.policy().min_per_layer()) +
                    " in each layer needs " + std::to_string(least) +
                    " draws, more than spec.policy.totalBudget, which is " + std::to_string(total) +
                    " (" + model + ")");
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
    const uint32_t reads = readsOf(schedule), least = std::max(1u, reads);
    for (const uint32_t budget : spec.evaluation().budgets()) {
      if (budget / layers >= least) continue;
      const std::string needs = reads <= 1
                                    ? "oneHot needs at least one draw"
                                    : "oneHot reads=" + std::to_string(reads) + " needs at least " +
                                          std::to_string(reads) + " draws";
      return badInput(path + needs + " in each layer, but " + model +
                      " and spec.evaluation.budgets has " + std::to_string(budget));
    }
  }
  return {};
}

std::string canonicalBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string specDigest(const v1::Experiment& experiment) {
  return sha256Hex(canonicalBytes(experiment));
}

}  // namespace allot
