#include "core/evaluation/evaluation_check.h"

#include <gtest/gtest.h>

#include <cmath>

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
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(0)->set_score(NAN); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(0)->set_score(1.5); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(0)->set_other_score(NAN); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(0)->set_question(33); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(1)->set_question(34); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores(1)->set_task(2); }), scores);
  EXPECT_EQ(why([](auto* r) { r->mutable_scores()->RemoveLast(); }), scores);
  EXPECT_EQ(why([](auto* r) { r->add_fidelity()->set_states(1); }), scores);
  EXPECT_EQ(why([](auto* r) { r->add_agreement(); }), scores);
  const std::string counts = "has counts that cannot be";
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_unique_rows(101); }), counts);
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_group_rows(101); }), counts);
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_value_bytes(1001); }), counts);
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_key_bytes(2001); }), counts);
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_key_bytes(1100); }), "");  // and a shadow
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_draws(UINT64_MAX); }), counts);
  EXPECT_EQ(why([](auto* r) { r->mutable_counts()->set_decode_seconds(NAN); }), counts);
  const auto prompts = [&](auto change) {
    return why([&](auto* r) {
      v1::PrefillCounts* p = r->mutable_prefill();
      p->set_prompts(2);
      p->set_blocks(10);
      p->set_dense_blocks(20);
      p->set_skipped_blocks(5);
      p->set_kept_queries(100);
      p->set_kept_mass(100);
      p->set_least_kept_mass(1);
      change(p);
    });
  };
  EXPECT_EQ(prompts([](auto*) {}), "");
  EXPECT_EQ(prompts([](auto* p) { p->set_prompts(3); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_blocks(21); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_skipped_blocks(11); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_unique_rows(1); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_value_bytes(1); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_tokens(UINT64_MAX); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_kept_mass(100.1); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_kept_mass(NAN); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_least_kept_mass(1.1); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_seconds(-1); }), counts);
  EXPECT_EQ(prompts([](auto* p) { p->set_selection_seconds(NAN); }), counts);
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
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_task(2); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_layer(3); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_support(4); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_states(0); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_exceeded(11); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_unique_rows(601); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_estimated_states(11); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_estimated_error(1); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_cosine(10.1); }));
  EXPECT_FALSE(refused([](auto* r) { r->mutable_fidelity(0)->set_cosine(-10); }));
  // Ten states whose squares sum to 2.5 cannot sum to more than 5.
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_relative_error(5.1); }));
  for (double bad : {-1.0, double(NAN), double(INFINITY), 1e300}) {
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_relative_error(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_relative_error_squared(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_squared_error(bad); }));
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_fidelity(0)->set_effective_sample_size(bad); }));
  }
  EXPECT_TRUE(refused([](auto* r) { r->mutable_agreement(0)->set_agreed(11); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_agreement(0)->set_task(1); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_agreement(0)->set_task(2); }));
  // What only variance has.
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_positions(1); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_variance(1); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_closed_form_positions(1); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_fidelity(0)->set_closed_form(1); }));
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

}  // namespace
}  // namespace allot
