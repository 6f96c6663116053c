// Files whose keys would silently be without effect, and sentences that name what is wrong in a
// file: for files that are applied. What is stored is read as it is.
#include "core/spec/spec.h"
#include "tests/core/spec_texts.h"

namespace allot {
namespace {

TEST(SpecEffects, QuestionsOfAnEpisodeAreForTraining) {
  const std::string learning = tiny("  update: {}\n");
  for (const char* few : {"15", "0"}) {
    const std::string set = std::string("spec.task.trainQuestions=") + few;
    EXPECT_EQ(refusal(learning, {set}),
              std::string("x.yaml: spec.rollout.questionsPerEpisode: 16 is more than "
                          "spec.task.trainQuestions, which is ") +
                  few);
    EXPECT_EQ(parsed(tiny(), {set}).spec().task().train_questions(), std::stoul(few));
  }
}

TEST(SpecEffects, WhatWouldBeWithoutEffectIsRefusedInFilesThatAreApplied) {
  const std::vector<std::string> ruler = {"spec.task={suite: ruler, tasks: [vt]}",
                                          "spec.model.chatTemplate=qwen2"};
  EXPECT_EQ(parsed(tiny(), ruler).spec().model().chat_template(), "qwen2");
  struct Idle {
    std::vector<std::string> set;
    std::string why;
  };
  for (const Idle& idle : std::vector<Idle>{
           {{"spec.model.chatTemplate=qwen2"},
            "x.yaml: spec.model.chatTemplate: \"qwen2\" has no effect: suite recall asks its model "
            "in plain text; remove the key"},
           {{ruler[0], ruler[1], "spec.task.path=made"},
            "x.yaml: spec.model.chatTemplate: \"qwen2\" has no effect: prompts of RULER's files "
            "are asked as its scripts wrote them, which put a model's template around them if told "
            "to; remove the key"},
           {{ruler[0], "spec.model.chatTemplate=rendered"},
            "x.yaml: spec.model.chatTemplate: \"rendered\" is for suite jsonl, whose prompts may "
            "hold a model's turns; choose auto, none or a template"},
           {{"spec.update={learner: additive, learningRate: 0.1}"},
            "x.yaml: spec.update.learningRate: has no effect on learner additive: remove this key, "
            "or choose learner reinforce"},
           {{"spec.update={learner: additive, entropyBonus: 0.1}"},
            "x.yaml: spec.update.entropyBonus: has no effect on learner additive: remove this key, "
            "or choose learner reinforce"},
           {{"spec.evaluation={repeats: 3, measures: [fidelity]}"},
            "x.yaml: spec.evaluation.repeats: 3 has no effect: spec.evaluation.measures has no "
            "accuracy, and fidelity is not repeated; add it, or remove this key"},
           {{"spec.evaluation={repeats: 3, methods: [dense, top-k, quest]}"},
            "x.yaml: spec.evaluation.repeats: 3 has no effect: no method of "
            "spec.evaluation.methods or prefills draws, and at spec.generation.temperature 0 every "
            "answer would be the same; name one that draws, or remove this key"},
           {{"spec.generation={topP: 0.9}"},
            "x.yaml: spec.generation.topP: has no effect: at spec.generation.temperature 0 the "
            "likeliest token is taken; write a temperature, or remove this key"},
           {{"spec.generation={temperature: 0, topK: 5}"},
            "x.yaml: spec.generation.topK: has no effect: at spec.generation.temperature 0 the "
            "likeliest token is taken; write a temperature, or remove this key"},
           {{"spec.evaluation={answers: all, measures: [fidelity]}"},
            "x.yaml: spec.evaluation.answers: all has no effect: spec.evaluation.measures has no "
            "accuracy, without which nothing is answered; add it, or remove this key"},
           {{"spec.evaluation={schedules: [uniform, [1, 9]], budgets: [8, 16]}"},
            "x.yaml: spec.evaluation.schedules[1]: sums to 10, at which it would be measured, but "
            "that is not in spec.evaluation.budgets, [8, 16]; add it there, or change the list"}}) {
    EXPECT_EQ(refusal(tiny(), idle.set), idle.why);
    // What is stored is read, whatever it is.
    EXPECT_TRUE(parseStoredExperiment(tiny(), "x.yaml", idle.set));
  }
  for (const char* used : {"{learningRate: 0.1, entropyBonus: 0.1, baseline: batch-mean}",
                           "{learner: additive, optimizer: sgd, baseline: batch-mean}",
                           "{learner: additive, learningRate: 0.05}", "{learner: santa}"}) {
    EXPECT_TRUE(parseExperiment(tiny(), "x.yaml", {std::string("spec.update=") + used})) << used;
  }
  for (const char* harmless : {"auto", "none"}) {
    EXPECT_TRUE(
        parseExperiment(tiny(), "x.yaml", {std::string("spec.model.chatTemplate=") + harmless}));
  }
  EXPECT_TRUE(parseExperiment(tiny(), "x.yaml", {"spec.generation={topP: 1, topK: 0}"}));
  EXPECT_TRUE(parseExperiment(tiny(), "x.yaml", {"spec.generation={temperature: 1, topK: 5}"}));
  EXPECT_TRUE(parseExperiment(
      tiny(), "x.yaml", {"spec.task={suite: jsonl, path: q}", "spec.model.chatTemplate=rendered"}));
  EXPECT_TRUE(
      parseExperiment(tiny(), "x.yaml", {"spec.evaluation={schedules: [[1, 9]], budgets: [10]}"}));
}

TEST(SpecEffects, ALeastPerLayerLeavesSomethingToLearnAndFitsTheBudgets) {
  const auto problem = [](std::vector<std::string> set, uint32_t layers) {
    set.emplace_back("spec.update.maxUpdates=3");
    return messageOf(checkEffects(parsed(tiny(), set), layers));
  };
  const std::vector<std::string> two = {"spec.policy={totalBudget: 16, minPerLayer: 2}",
                                        "spec.evaluation.budgets=[14, 8]"};
  EXPECT_EQ(problem(two, 4), "");
  EXPECT_EQ(problem(two, 7),
            "spec.evaluation.budgets[1]: the learned schedule cannot be measured at 8: "
            "spec.policy.minPerLayer, 2 in each layer takes 14 draws (the model has 7 layers); "
            "raise the one or lower the other");
  EXPECT_EQ(problem({two[0]}, 7), "");
  EXPECT_EQ(problem({two[0]}, 8),
            "spec.policy.minPerLayer: 2 in each layer takes 16 draws (the model has 8 layers), "
            "which is all of spec.policy.totalBudget, so that nothing is left to learn; lower it "
            "or raise the budget");
  // It is the learned schedule's.
  EXPECT_EQ(problem({two[0], two[1], "spec.evaluation.schedules=[uniform]"}, 7), "");
  EXPECT_EQ(problem({"spec.evaluation.budgets=[1]"}, 8), "");
}

TEST(SpecEffects, TabsAndOpenBracketsAreNamed) {
  EXPECT_THAT(refusal(tiny("  update:\n\tmaxUpdates: 3\n")),
              EndsWith(": line 9 begins with a tab, which YAML does not take; indent with spaces"));
  EXPECT_THAT(refusal(tiny("  update: {maxUpdates: 3 # }\n  seed: 1\n")),
              EndsWith(": the { or [ of line 8 is not closed before this line"));
  EXPECT_THAT(refusal(tiny("  evaluation: {methods: ['a]']\n  seed: 1\n")),
              HasSubstr("the { or [ of line 8 is not closed"));
}

}  // namespace
}  // namespace allot
