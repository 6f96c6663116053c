#include "core/spec/spec_defaults.h"

#include <string>
#include <string_view>

#include "core/spec/choices.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_yaml.h"
#include "core/spec/task_catalogue.h"

namespace allot {
namespace {

struct StepDefaults {
  Optimizer optimizer = Optimizer::kAdam;
  double learning_rate = 0.05;
  Baseline baseline = Baseline::kLeaveOneOut;
  StalenessMode staleness = StalenessMode::kTruncatedIs;
};

StepDefaults stepDefaultsOf(Learner learner) {
  if (learner != Learner::kSanta) return {};
  return {Optimizer::kSgd, 0.02, Baseline::kBatchMean, StalenessMode::kNone};
}

std::string orElse(const std::string& given, std::string_view value) {
  return given.empty() ? std::string(value) : given;
}

bool hasStyles(const v1::Task& task) { return task.suite() == "gsm8k" || task.suite() == "mmlu"; }

bool hasSplits(const v1::Task& task) { return task.suite() == "mmlu"; }

// Sets an empty value to its default if the suite uses the key; else clears the default.
void settle(bool used, const char* usual, std::string* value) {
  if (used && value->empty()) *value = usual;
  if (!used && *value == usual) value->clear();
}

std::optional<SpecProblem> namesProblem(const v1::Task& task, const SuiteInfo& suite) {
  const std::vector<std::string> names = suite.taskNames();
  if (task.tasks().empty()) {
    return SpecProblem{"spec.task.tasks", "required, but missing; allowed for suite " +
                                              task.suite() + ": " + joined(names)};
  }
  for (int i = 0; i < task.tasks_size(); ++i) {
    const std::string& name = task.tasks(i);
    const std::string path = "spec.task.tasks[" + std::to_string(i) + "]";
    const TaskInfo* info = suite.find(name);
    if (info == nullptr) {
      const std::string meant = nearest(name, names);
      return SpecProblem{path, doubleQuoted(name) + " is not one of " + joined(names) +
                                   (meant.empty() ? "" : " (did you mean " + meant + "?)")};
    }
    if (info->needs_path && task.path().empty()) {
      return SpecProblem{path, doubleQuoted(name) +
                                   " cannot be generated here: make it with RULER's scripts and "
                                   "set spec.task.path to their folder"};
    }
  }
  return std::nullopt;
}

std::optional<SpecProblem> pathProblem(const v1::Task& task, const SuiteInfo& suite) {
  if (suite.path == TaskPath::kRequired && task.path().empty()) {
    return SpecProblem{"spec.task.path",
                       "required for suite " + task.suite() +
                           ", but missing; name the file or folder with its questions"};
  }
  if (suite.path == TaskPath::kNever && !task.path().empty()) {
    return SpecProblem{"spec.task.path", "suite " + task.suite() +
                                             " generates its questions and reads no file; remove "
                                             "the key"};
  }
  if (!task.held_out_path().empty() && task.path().empty()) {
    return SpecProblem{"spec.task.heldOutPath",
                       "needs spec.task.path, which says where training questions come from"};
  }
  return std::nullopt;
}

std::optional<SpecProblem> lengthProblem(const v1::Task& task) {
  for (const std::string& name : task.tasks()) {
    if (longestAnswer(task, name) > 0) continue;
    return SpecProblem{"spec.task.maxNewTokens",
                       "0 stands for lengths that tasks have of their own, but those of suite " +
                           task.suite() + " have none; write the longest answer in tokens"};
  }
  return std::nullopt;
}

std::optional<SpecProblem> graderProblem(const v1::Task& task, const SuiteInfo& suite) {
  if (task.grader() != kSantaGraders) return std::nullopt;
  for (const std::string& name : task.tasks()) {
    if (!suite.find(name)->other_grader.empty()) continue;
    return SpecProblem{"spec.task.grader", "santa has no grader for task " + name +
                                               "; name one (`allot tasks` lists them)"};
  }
  return std::nullopt;
}

}  // namespace

void deriveSteps(v1::Spec& spec) {
  const StepDefaults defaults = stepDefaultsOf(learnerOf(spec.update()));
  v1::Staleness& staleness = *spec.mutable_staleness();
  staleness.set_mode(orElse(staleness.mode(), wordOf(defaults.staleness)));
  if (!spec.has_update()) return;
  v1::Update& update = *spec.mutable_update();
  update.set_optimizer(orElse(update.optimizer(), wordOf(defaults.optimizer)));
  update.set_baseline(orElse(update.baseline(), wordOf(defaults.baseline)));
  if (update.learning_rate() == 0) update.set_learning_rate(defaults.learning_rate);
}

std::optional<SpecProblem> santaProblem(const v1::Spec& spec) {
  if (!spec.has_update() || learnerOf(spec.update()) != Learner::kSanta) return std::nullopt;
  const StepDefaults wanted = stepDefaultsOf(Learner::kSanta);
  const v1::Update& update = spec.update();
  const struct {
    const char* path;
    bool holds;
    std::string_view value;
  } all[] = {
      {"spec.update.optimizer", optimizerOf(update) == wanted.optimizer, wordOf(wanted.optimizer)},
      {"spec.update.baseline", baselineOf(update) == wanted.baseline, wordOf(wanted.baseline)},
      {"spec.update.entropyBonus", update.entropy_bonus() == 0, "0"},
      {"spec.staleness.mode", modeOf(spec.staleness()) == wanted.staleness,
       wordOf(wanted.staleness)},
      {"spec.policy.totalBudgets", spec.policy().total_budgets_size() <= 1, "one total budget"},
      {"spec.policy.granularity", granularityOf(spec.policy()) == Granularity::kLayer,
       wordOf(Granularity::kLayer)},
      {"spec.rollout.episodesPerQuestionSet", spec.rollout().episodes_per_question_set() <= 1, "1"},
  };
  for (const auto& one : all) {
    if (one.holds) continue;
    return SpecProblem{one.path,
                       "spec.update.learner santa is Algorithm 1 to the letter, which has " +
                           std::string(one.value) +
                           " here: leave this key out, or choose learner reinforce"};
  }
  return std::nullopt;
}

std::optional<SpecProblem> idleStepProblem(const v1::Spec& spec) {
  if (!spec.has_update()) return std::nullopt;
  const v1::Update& update = spec.update();
  const Learner learner = learnerOf(update);
  const bool ascends = learner == Learner::kReinforce || learner == Learner::kSanta;
  const StepDefaults usual = stepDefaultsOf(learner);
  const struct {
    const char* path;
    bool idle;
    bool usual;
  } all[] = {
      {"spec.update.learningRate", !ascends, update.learning_rate() == usual.learning_rate},
      {"spec.update.entropyBonus", !ascends, update.entropy_bonus() == 0},
  };
  for (const auto& one : all) {
    if (!one.idle || one.usual) continue;
    return SpecProblem{one.path, "has no effect on learner " + std::string(wordOf(learner)) +
                                     ": remove this key, or choose learner reinforce"};
  }
  return std::nullopt;
}

void deriveTaskDefaults(v1::Task& task) {
  const SuiteInfo* suite = findSuiteInfo(task.suite());
  if (suite == nullptr) return;
  if (task.tasks().empty() && suite->tasks.size() == 1) {
    task.add_tasks(std::string(suite->tasks[0].name));
  }
  settle(task.suite() == "jsonl", "prompt", task.mutable_prompt_field());
  settle(task.suite() == "jsonl", "answers", task.mutable_answers_field());
  settle(hasStyles(task), "llama", task.mutable_prompt_style());
  // An empty split means test.
  if (task.split() == "test") task.clear_split();
}

std::optional<SpecProblem> taskProblem(const v1::Task& task) {
  const SuiteInfo& suite = *findSuiteInfo(task.suite());
  if (auto problem = namesProblem(task, suite)) return problem;
  if (auto problem = pathProblem(task, suite)) return problem;
  const auto meaningless = [&](const char* key, const char* of) {
    return SpecProblem{std::string("spec.task.") + key,
                       std::string("is for ") + of + " only; remove it or change spec.task.suite"};
  };
  if (task.suite() != "jsonl") {
    if (!task.prompt_field().empty()) return meaningless("promptField", "suite jsonl");
    if (!task.answers_field().empty()) return meaningless("answersField", "suite jsonl");
  }
  if (!hasStyles(task) && !task.prompt_style().empty()) {
    return meaningless("promptStyle", "suites gsm8k and mmlu");
  }
  if (!hasSplits(task) && !task.split().empty()) return meaningless("split", "suite mmlu");
  if (auto problem = lengthProblem(task)) return problem;
  return graderProblem(task, suite);
}

}  // namespace allot
