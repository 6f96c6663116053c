#include "core/evaluation/evaluation_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/evaluation/question_tasks.h"
#include "tests/core/evaluation_results.h"

namespace allot {
namespace {

TEST(EvaluationCheck, RefusesScoresAndCountsThatCannotBe) {
  const auto why = [](auto change) {
    v1::EvaluationResult result = graded(32, {1, 0.5});
    change(&result);
    return whyImpossible(result, {2, 3}).value_or("");
  };
  EXPECT_EQ(why([](auto*) {}), "");
  const std::string scores = "has scores that cannot be";
  for (const char* bad : {"score: nan", "score: 1.5", "other_score: nan", "question: 33"}) {
    EXPECT_EQ(why([&](auto* r) { setFields(bad, r->mutable_scores(0)); }), scores) << bad;
  }
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(1)->set_question(34); }), scores);
  // The i-th score is of the i-th question: others compare scores by place.
  EXPECT_EQ(why([](auto* r) { r->mutable_scores()->SwapElements(0, 1); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(1)->set_task(2); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores()->RemoveLast(); }), scores);
  EXPECT_EQ(why([](auto* r) { r->add_fidelity()->set_states(1); }), scores);
  EXPECT_EQ(why([](auto* r) { r->add_agreement(); }), scores);
  const std::string counts = "has counts that cannot be";
  for (const char* bad :
       {"unique_rows: 101", "group_rows: 101", "value_bytes: 1001", "key_bytes: 2001",
        "draws: 18446744073709551615", "decode_seconds: nan"}) {
    EXPECT_EQ(why([&](auto* r) { setFields(bad, r->mutable_counts()); }), counts) << bad;
  }
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_key_bytes(1100); }), "");  // and a shadow
  const auto prompts = [&](const std::string& changed) {
    return why([&](auto* r) {
      setFields(
          "prompts: 2 blocks: 10 dense_blocks: 20 skipped_blocks: 5 kept_queries: 100 "
          "kept_mass: 100 least_kept_mass: 1 " +
              changed,
          r->mutable_prefill());
    });
  };
  EXPECT_EQ(prompts(""), "");
  for (const char* bad :
       {"prompts: 3", "blocks: 21", "skipped_blocks: 11", "unique_rows: 1", "value_bytes: 1",
        "tokens: 18446744073709551615", "kept_mass: 100.1", "kept_mass: nan",
        "least_kept_mass: 1.1", "seconds: -1", "selection_seconds: nan"}) {
    EXPECT_EQ(prompts(bad), counts) << bad;
  }
  for (double seconds : {-1.0, 1e7, double(NAN), double(INFINITY)}) {
    EXPECT_EQ(why([&](auto* r) { r->set_seconds(seconds); }), "has a duration that cannot be");
  }
}

TEST(EvaluationCheck, RefusesFidelityThatCannotBe) {
  const auto refused = [](auto change) {
    auto result =
        compared("santa", 8, 0, {fidelityCell(0, 0, 1, 10, 0.5), fidelityCell(1, 2, 9, 10, 0.5)});
    change(&result);
    const auto why = whyImpossible(result, {2, 3});
    EXPECT_EQ(why.value_or("has fidelity cells that cannot be"),
              "has fidelity cells that cannot be");
    return why.has_value();
  };
  EXPECT_FALSE(refused([](auto*) {}));
  EXPECT_TRUE(refused([](auto* r) { r->add_scores(); }));
  EXPECT_TRUE(refused([](auto* r) { r->clear_fidelity(); }));
  EXPECT_TRUE(refused([](auto* r) { *r->add_fidelity() = r->fidelity(0); }));
  for (const char* bad :
       {"task: 2", "layer: 3", "support: 4", "states: 0", "exceeded: 11", "unique_rows: 601",
        "estimated_states: 11", "estimated_error: 1", "cosine: 10.1",
        // Ten states whose squares sum to 2.5 cannot sum to more than 5.
        "relative_error: 5.1",
        // What only variance has.
        "positions: 1", "variance: 1", "closed_form_positions: 1", "closed_form: 1"}) {
    EXPECT_TRUE(refused([&](auto* r) { setFields(bad, r->mutable_fidelity(0)); })) << bad;
  }
  EXPECT_FALSE(refused([](auto* r) { r->mutable_fidelity(0)->set_cosine(-10); }));
  for (double bad : {-1.0, double(NAN), double(INFINITY), 1e300}) {
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_relative_error(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_relative_error_squared(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_squared_error(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_effective_sample_size(bad); }));
  }
  for (const char* bad : {"agreed: 11", "task: 1", "task: 2"}) {
    EXPECT_TRUE(refused([&](auto* r) { setFields(bad, r->mutable_agreement(0)); })) << bad;
  }
}

TEST(EvaluationCheck, RefusesTheAgreementOfLayersThatNobodyAskedFor) {
  // Layers of tasks 0 and 1; -1: all at once.
  const auto refused = [](AgreementLayers asked, std::vector<std::pair<int, int>> cells,
                          uint32_t layers = 3) {
    auto result = compared("santa", 8, 0, {fidelityCell(0, 0, 1, 10, 0.5)});
    result.clear_agreement();
    for (const auto& [task, layer] : cells) {
      auto* cell = result.add_agreement();
      cell->set_task(static_cast<uint32_t>(task));
      if (layer >= 0) cell->set_layer(static_cast<uint32_t>(layer));
    }
    return whyImpossible(result, {2, layers, asked}).has_value();
  };
  EXPECT_FALSE(refused(AgreementLayers::kAll, {{0, -1}, {1, -1}}));
  EXPECT_TRUE(refused(AgreementLayers::kAll, {{0, -1}, {1, 2}}));
  EXPECT_FALSE(refused(AgreementLayers::kLast, {{0, 2}, {1, 2}}));
  EXPECT_TRUE(refused(AgreementLayers::kLast, {{0, 2}, {1, -1}}));
  EXPECT_TRUE(refused(AgreementLayers::kLast, {{0, 1}}));
  EXPECT_FALSE(refused(AgreementLayers::kLast, {{0, 1}}, 0));  // nobody knows the model here
  EXPECT_FALSE(refused(AgreementLayers::kEach, {{0, 0}, {0, 1}, {0, 2}, {1, 0}}));
  EXPECT_TRUE(refused(AgreementLayers::kEach, {{0, 0}, {0, 1}, {0, 1}}));
  EXPECT_TRUE(refused(AgreementLayers::kEach, {{0, 3}}));
  EXPECT_TRUE(refused(AgreementLayers::kEach, {{0, 1 << 20}}, 0));
  EXPECT_TRUE(refused(AgreementLayers::kEach, {{0, -1}}));
}

TEST(EvaluationCheck, RefusesLossesOfLayersThatCannotBe) {
  const auto refused = [](auto change) {
    auto result = compared("santa", 6, 0, {});
    auto& unit = *result.mutable_unit();
    unit.set_measure("layer-loss");
    unit.add_schedule(2);
    result.clear_agreement();
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (uint32_t task = 0; task < 2; ++task) {
        auto* cell = result.add_agreement();
        cell->set_task(task);
        cell->set_layer(layer);
        setFields("steps: 10 agreed: 9 questions: 1 divergence: 3 divergence_squared: 9", cell);
      }
    }
    change(&result);
    const auto why = whyImpossible(result, {2, 3});
    EXPECT_EQ(why.value_or("has layers' losses that cannot be"),
              "has layers' losses that cannot be");
    return why.has_value();
  };
  EXPECT_FALSE(refused([](auto*) {}));
  EXPECT_FALSE(refused([](auto* r) {  // answers of one token
    for (auto& cell : *r->mutable_agreement()) {
      setFields("steps: 0 agreed: 0 questions: 0 divergence: 0 divergence_squared: 0", &cell);
    }
  }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_agreement()->RemoveLast(); }));
  EXPECT_TRUE(refused([](auto* r) { r->clear_agreement(); }));
  EXPECT_TRUE(refused([](auto* r) { r->add_scores(); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_agreement(0)->clear_layer(); }));
  for (const char* bad :
       {"agreed: 11", "task: 2", "layer: 3", "steps: 11", "questions: 11", "divergence: -1",
        "divergence: 3.1", "divergence: nan", "divergence_squared: 1e300", "questions: 0"}) {
    EXPECT_TRUE(refused([&](auto* r) { setFields(bad, r->mutable_agreement(0)); })) << bad;
  }
}

TEST(EvaluationCheck, RefusesVarianceThatCannotBe) {
  const auto refused = [](auto change, uint32_t replicates = 4) {
    auto result = replicated("santa", 8, 0, 0.5);
    change(result, result.mutable_fidelity(0));
    const auto why = whyImpossible(result, {2, 3, AgreementLayers::kAll, replicates});
    EXPECT_EQ(why.value_or("has variance cells that cannot be"),
              "has variance cells that cannot be");
    return why.has_value();
  };
  EXPECT_FALSE(refused([](auto&, auto*) {}));
  EXPECT_FALSE(refused([](auto&, auto*) {}, 0));
  EXPECT_TRUE(refused([](auto&, auto*) {}, 5));
  EXPECT_TRUE(refused([](auto& r, auto*) { r.add_agreement(); }));
  EXPECT_TRUE(refused([](auto& r, auto*) { r.add_scores(); }));
  EXPECT_TRUE(refused([](auto& r, auto*) { r.clear_fidelity(); }));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_layer(3); }));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_states(41); }, 0));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_positions(0); }));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_positions(9); }, 0));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_positions(40); }, 0));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_positions(UINT64_MAX); }, 0));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_closed_form_positions(9); }));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_closed_form_positions(0); }));
  // 3 / 10 of the squared error is the most: 20 / 3 of variance.
  EXPECT_FALSE(refused([](auto&, auto* cell) { cell->set_variance(6.66); }));
  EXPECT_TRUE(refused([](auto&, auto* cell) { cell->set_variance(6.68); }));
  for (double bad : {-1.0, double(NAN), double(INFINITY), 1e300}) {
    EXPECT_TRUE(refused([&](auto&, auto* cell) { cell->set_variance(bad); }));
    EXPECT_TRUE(refused([&](auto&, auto* cell) { cell->set_closed_form(bad); }));
  }
}

// A question is the same one in each cell and version.
TEST(QuestionTasks, AQuestionHasOneTaskOverTheRun) {
  QuestionTasks tasks;
  EXPECT_FALSE(tasks.find(graded(32, {1, 0, 1})));
  tasks.add(graded(32, {1, 0, 1}));
  EXPECT_FALSE(tasks.find(graded(32, {0, 1, 0})));
  EXPECT_FALSE(tasks.find(graded(35, {1, 1})));
  auto other = graded(34, {1, 1});
  EXPECT_FALSE(tasks.find(other));
  tasks.add(other);
  other.mutable_scores(1)->set_task(0);
  auto conflict = tasks.find(other);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->place, 1u);
  EXPECT_EQ(conflict->earlierPlace(other), 1u);
  // The first one counts, whatever is added later.
  auto later = graded(33, {1, 1});
  conflict = tasks.find(later);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->place, 0u);
  EXPECT_EQ(conflict->earlierPlace(later), 1u);
  EXPECT_EQ(conflict->earlier->unit().first_question(), 32u);
  tasks.add(later);
  EXPECT_FALSE(tasks.find(graded(32, {1, 0, 1})));
  v1::EvaluationResult bare = compared("santa", 8, 0, {fidelityCell(0, 0, 1, 10, 0.5)});
  tasks.add(bare);
  EXPECT_FALSE(tasks.find(bare));
}

}  // namespace
}  // namespace allot
