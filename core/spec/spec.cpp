#include "core/spec/spec.h"

#include <algorithm>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/cluster_section.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_defaults.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_values.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

constexpr size_t kMaxName = 50;

tl::unexpected<Error> unknownKey(const Site& parent, const std::string& key) {
  const Site site = parent.under(escaped(key));
  const std::vector<std::string> known = knownKeys(parent.path);
  if (known.empty()) {
    return site.refuse("unknown key; " + parent.path + " is a value, not a section");
  }
  if (const std::string near = nearest(key, known); !near.empty()) {
    return site.refuse("unknown key" + didYouMean(near));
  }
  for (const auto* rules : {&specRules(), &clusterRules()}) {
    for (const SpecRule& rule : *rules) {
      if (rule.path.substr(rule.path.rfind('.') + 1) != key) continue;
      return site.refuse("unknown key" + didYouMean(rule.path));
    }
  }
  return site.refuse("unknown key; known here: " + joined(known));
}

// Checks that the rules know the keys in `section`, and in sections below that have rules.
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

Status readSpec(const YamlValue& root, const std::string& place, uint32_t schema,
                const std::vector<SpecRule>& rules, v1::Spec& spec) {
  const bool updates = findPath(root, "spec.update") != nullptr;
  for (const SpecRule& rule : rules) {
    const bool of_update = rule.path.compare(0, 12, "spec.update.") == 0;
    if (of_update && !updates) continue;
    const SpecField target = fieldOf(rule, spec);
    const Site site{place, rule.path};
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

// Sets the keys of learning that the file leaves out.
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

Status checkMethods(const v1::Spec& spec, const std::string& place) {
  const auto draws = [](const std::string& text, kernels::Phase phase) {
    kernels::MethodOptions parsed;
    // Parsing succeeds: readMethod has parsed the text before.
    kernels::parseMethod(text, &parsed, phase);
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

// Checks learner, total budgets and question sets against each other.
Status checkLearning(const v1::Spec& spec, const std::string& place) {
  if (const auto problem = santaProblem(spec)) {
    return Site{place, problem->path}.refuse(problem->what);
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

// Checks rules that join keys.
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

// Sets the key of one "spec.a.b=value" in the tree.
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
      value.kind = YamlValue::Kind::kScalar;  // an empty value is the empty string
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

namespace {

// Parses and checks the whole file, without checkEffects.
Result<ExperimentObject> parseFile(const std::string& yaml, const std::string& place,
                                   const std::vector<std::string>& overrides, uint32_t schema,
                                   const std::vector<SpecRule>& rules) {
  ALLOT_ASSIGN(YamlValue root, parseYaml(yaml, place));
  const Site site{place, ""};
  if (root.kind != YamlValue::Kind::kMap) {
    return badInput(place + ": is not an experiment file; it must start with apiVersion and kind");
  }
  for (const std::string& text : overrides) ALLOT_TRY(applyOverride(text, root));
  ALLOT_TRY(checkConstant(root, "apiVersion", "allot.dev/v1alpha1", site));
  ALLOT_TRY(checkConstant(root, "kind", "Experiment", site));
  ALLOT_TRY(checkKeys(root, site));
  ExperimentObject object;
  v1::Experiment& experiment = object.experiment;
  ALLOT_ASSIGN(*experiment.mutable_name(), readName(root, site));
  ALLOT_TRY(checkMetadata(root, place));
  if (const YamlValue* name_space = findPath(root, "metadata.namespace")) {
    object.name_space = name_space->text;
  }
  if (root.find("spec") == nullptr) return site.under("spec").refuse("required, but missing");
  ALLOT_TRY(readSpec(root, place, schema, rules, *experiment.mutable_spec()));
  ALLOT_TRY(deriveLearning(root, place, *experiment.mutable_spec()));
  deriveDefaults(*experiment.mutable_spec());
  ALLOT_TRY(readOwnProfile(*experiment.mutable_spec(), place));
  ALLOT_TRY(checkTogether(experiment.spec(), place));
  ALLOT_ASSIGN(object.cluster, readCluster(root, place));
  return object;
}

}  // namespace

Result<v1::Experiment> parseExperiment(const std::string& yaml, const std::string& place,
                                       const std::vector<std::string>& overrides) {
  ALLOT_ASSIGN(auto object, parseExperimentObject(yaml, place, overrides));
  return std::move(object.experiment);
}

Result<ExperimentObject> parseExperimentObject(const std::string& yaml, const std::string& place,
                                               const std::vector<std::string>& overrides) {
  ALLOT_ASSIGN(auto object, parseFile(yaml, place, overrides, kSpecSchema, specRules()));
  ALLOT_TRY(checkEffects(object.experiment, place));
  return object;
}

Result<v1::Experiment> parseStoredExperiment(const std::string& yaml, const std::string& place,
                                             const std::vector<std::string>& overrides,
                                             uint32_t schema, const std::vector<SpecRule>& rules) {
  ALLOT_ASSIGN(auto object, parseFile(yaml, place, overrides, schema, rules));
  return std::move(object.experiment);
}

Result<FileOfRun> parseFileOfRun(const std::string& yaml, const std::string& place,
                                 const std::vector<std::string>& overrides, uint32_t schema,
                                 const std::vector<SpecRule>& rules) {
  FileOfRun file{{}, schema};
  const auto parse = [&]() -> Status {
    ALLOT_ASSIGN(file.experiment,
                 parseStoredExperiment(yaml, place, overrides, file.schema, rules));
    return {};
  };
  ALLOT_TRY(parse());
  if (changesBeyond(schema, file.experiment, rules).empty()) return file;
  for (const SpecRule& rule : rules) file.schema = std::max(file.schema, rule.since);
  ALLOT_TRY(parse());
  return file;
}

}  // namespace allot
