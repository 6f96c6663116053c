#include "core/spec/spec.h"

#include <algorithm>

#include "allot/kernels/method.h"
#include "core/spec/choices.h"
#include "core/spec/cluster_section.h"
#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_defaults.h"
#include "core/spec/spec_prices.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_values.h"
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

constexpr size_t kMaxName = 50;
// Of generated questions for confirmations, by default: most tokens and questions, and most for one
// training question.
constexpr uint32_t kConfirmTokens = 1 << 21, kMostConfirm = 4096, kConfirmToTrain = 16;

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
void checkKeys(const YamlValue& section, const Site& site, Mistakes* mistakes) {
  if (section.kind != YamlValue::Kind::kMap) {
    mistakes->pass(wrongType(site, section, "a section (keys with values)"));
    return;
  }
  const std::vector<std::string> known = knownKeys(site.path);
  for (size_t i = 0; i < section.keys.size() && !mistakes->full(); ++i) {
    const std::string& key = section.keys[i];
    const Site child = site.under(key);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      // The key that was meant is missing.
      mistakes->pass(unknownKey(site, key), site.path.empty() ? "spec" : site.path);
    } else if (!knownKeys(child.path).empty()) {
      checkKeys(section.items[i], child, mistakes);
    }
  }
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
  ALLOT_ASSIGN(const std::string name, readString(*value, name_site));
  const char* const letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (name.empty() || name.size() > kMaxName || name.front() == '-' || name.back() == '-' ||
      name.find_first_not_of(letters) != std::string::npos) {
    return name_site.refuse(doubleQuoted(name) +
                            " is not a name of 1..50 lower-case letters, digits and inner hyphens");
  }
  return name;
}

void readSpec(const YamlValue& root, const std::string& place, uint32_t schema,
              const std::vector<SpecRule>& rules, v1::Spec& spec, Mistakes* mistakes) {
  const bool updates = findPath(root, "spec.update") != nullptr;
  for (const SpecRule& rule : rules) {
    const bool of_update = rule.path.compare(0, 12, "spec.update.") == 0;
    if (of_update && !updates) continue;
    const SpecField target = fieldOf(rule, spec);
    const Site site{place, rule.path};
    const YamlValue* given = findPath(root, rule.path);
    if (given != nullptr && readField(rule, *given, site, target, mistakes)) continue;
    // A default in place of a mistake keeps what follows from true sentences.
    if (rule.since > schema) {
      mistakes->pass(readRule(rule, rule.before, target));
    } else if (rule.when_missing == SpecDefault::kRequired) {
      mistakes->passJoined(site.refuse("required, but missing; allowed: " + rangeText(rule)));
    } else if (rule.when_missing == SpecDefault::kValue) {
      mistakes->pass(readRule(rule, rule.default_value, target));
    }
  }
}

// A file has so many questions and no more; generated ones cost the time that they take.
uint32_t usualConfirmQuestions(const v1::Task& task) {
  const uint32_t train = task.train_questions();
  if (!task.path().empty()) return train;
  const uint32_t by_tokens = kConfirmTokens / std::max(1u, task.context_tokens());
  const uint64_t most =
      std::min<uint64_t>({by_tokens, kMostConfirm, uint64_t{kConfirmToTrain} * train});
  return std::max(train, static_cast<uint32_t>(most));
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
  if (learnsByBudgets(spec) && findPath(root, "spec.task.confirmQuestions") == nullptr) {
    spec.mutable_task()->set_confirm_questions(usualConfirmQuestions(spec.task()));
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
  const auto& schedules = evaluation.schedules();
  const bool measured = std::any_of(schedules.begin(), schedules.end(), [](const auto& schedule) {
    return kindOf(schedule) == ScheduleKind::kMeasured;
  });
  v1::Policy& policy = *spec.mutable_policy();
  // A priced run compares with the measured schedule where there is no uniform one.
  const bool measures = measured || (hasPrices(policy) && spec.has_update());
  if (measures && !policy.has_measure_questions()) policy.set_measure_questions(kMeasureQuestions);
  // Equal experiments have equal bytes, also those of builds that knew no price.
  if (!hasPrices(policy)) policy.clear_price();
  if (!measures && policy.measure_questions() == 0) policy.clear_measure_questions();
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

Status checkTask(const v1::Spec& spec, const std::string& place) {
  if (const auto problem = taskProblem(spec.task())) {
    return Site{place, problem->path}.refuse(problem->what);
  }
  return {};
}

Status checkQuestions(const v1::Spec& spec, const std::string& place) {
  if (spec.has_update() && spec.rollout().questions_per_episode() > spec.task().train_questions()) {
    return Site{place, "spec.rollout.questionsPerEpisode"}.refuse(
        std::to_string(spec.rollout().questions_per_episode()) +
        " is more than spec.task.trainQuestions, which is " +
        std::to_string(spec.task().train_questions()));
  }
  return {};
}

// Checks that there is something learned where it is measured.
Status checkLearned(const v1::Spec& spec, const std::string& place) {
  for (int i = 0; i < spec.evaluation().schedules_size(); ++i) {
    const bool learned = kindOf(spec.evaluation().schedules(i)) == ScheduleKind::kLearned;
    if (!learned || spec.has_update()) continue;
    return Site{place, "spec.evaluation.schedules"}.at(i).refuse(
        "learned needs the section spec.update, which is missing; add it or remove learned");
  }
  return {};
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
  Mistakes mistakes("the table of keys");
  if (readField(rule, value, Site{"the table of keys", rule.path}, target, &mistakes)) return {};
  return badInput(mistakes.sentences(value).front());
}

namespace {

// Why a file is read.
enum class FileUse { kApplied, kStored };

// Reads the file, by `rules` and by those that join keys.
ExperimentObject readFile(const YamlValue& root, const std::string& place, uint32_t schema,
                          const std::vector<SpecRule>& rules, FileUse use, Mistakes* mistakes) {
  const Site site{place, ""};
  ExperimentObject object;
  v1::Experiment& experiment = object.experiment;
  v1::Spec& spec = *experiment.mutable_spec();
  const bool has_version =
      mistakes->pass(checkConstant(root, "apiVersion", "allot.dev/v1alpha1", site));
  const bool has_kind = mistakes->pass(checkConstant(root, "kind", "Experiment", site));
  if (!has_version || !has_kind) return object;  // a file of something else has no keys to check
  checkKeys(root, site, mistakes);
  mistakes->pass(readName(root, site), experiment.mutable_name());
  checkMetadata(root, place, mistakes);
  if (const YamlValue* name_space = findPath(root, "metadata.namespace")) {
    object.name_space = name_space->text;
  }
  if (root.find("spec") == nullptr) {
    mistakes->passJoined(site.under("spec").refuse("required, but missing"));
    return object;
  }
  readSpec(root, place, schema, rules, spec, mistakes);
  mistakes->passJoined(deriveLearning(root, place, spec));
  deriveDefaults(spec);
  mistakes->passJoined(readOwnProfile(spec, place));
  mistakes->passJoined(readOwnKvProfile(spec, place));
  mistakes->passJoined(checkShares(root, place, spec));
  for (const auto& check :
       {checkTask, checkQuestions, checkLearning, checkLearned, checkMethods, checkPrices}) {
    mistakes->passJoined(check(spec, place));
  }
  object.cluster = readCluster(root, place, mistakes);
  if (use == FileUse::kApplied) {
    for (const Status& effect : effectsOf(experiment, place)) mistakes->passJoined(effect);
  }
  return object;
}

Result<ExperimentObject> parseFile(const std::string& yaml, const std::string& place,
                                   const std::vector<std::string>& overrides, uint32_t schema,
                                   const std::vector<SpecRule>& rules, FileUse use,
                                   std::vector<std::string>* sentences) {
  const bool applied = use == FileUse::kApplied;
  auto root = parseYaml(yaml, place, applied ? OtherReader::kKubernetes : OtherReader::kNone);
  if (root && root->kind != YamlValue::Kind::kMap) {
    root = badInput(place + ": is not an experiment file; it must start with apiVersion and kind");
  }
  if (!root) {
    if (sentences != nullptr) *sentences = {root.error().message};
    return tl::unexpected<Error>(root.error());
  }
  Mistakes mistakes(place);
  for (const std::string& text : overrides) mistakes.pass(applyOverride(text, *root));
  ExperimentObject object = readFile(*root, place, schema, rules, use, &mistakes);
  if (mistakes.count() == 0) return object;
  std::vector<std::string> all = mistakes.sentences(*root);
  if (sentences != nullptr) *sentences = all;
  return badInput(all.front());
}

}  // namespace

Result<v1::Experiment> parseExperiment(const std::string& yaml, const std::string& place,
                                       const std::vector<std::string>& overrides,
                                       std::vector<std::string>* mistakes) {
  ALLOT_ASSIGN(auto object, parseExperimentObject(yaml, place, overrides, mistakes));
  return std::move(object.experiment);
}

Result<ExperimentObject> parseExperimentObject(const std::string& yaml, const std::string& place,
                                               const std::vector<std::string>& overrides,
                                               std::vector<std::string>* mistakes) {
  return parseFile(yaml, place, overrides, kSpecSchema, specRules(), FileUse::kApplied, mistakes);
}

Result<v1::Experiment> parseStoredExperiment(const std::string& yaml, const std::string& place,
                                             const std::vector<std::string>& overrides,
                                             uint32_t schema, const std::vector<SpecRule>& rules) {
  ALLOT_ASSIGN(auto object,
               parseFile(yaml, place, overrides, schema, rules, FileUse::kStored, nullptr));
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
