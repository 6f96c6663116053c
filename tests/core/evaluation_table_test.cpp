#include "core/evaluation/evaluation_table.h"

#include "core/random_stream.h"
#include "tests/core/evaluation_results.h"
#include "tests/results.h"

namespace allot {
namespace {

TEST(EvaluationTable, LearnedAccuracyIsTheNewestCompleteOfItsMethodAndBudget) {
  EvaluationTable table(gridOf(2, {"s2anta-q4", "s2anta-sys", "top-k"}));
  EXPECT_LT(table.learnedAccuracy("s2anta-sys", 8), 0);
  table.add(learned(25, "s2anta-sys", 8, 0.5, "uniform"));
  EXPECT_LT(table.learnedAccuracy("s2anta-sys", 8), 0);
  table.add(learned(50, "s2anta-sys", 8, 0.25));
  table.add(learned(25, "s2anta-sys", 8, 0.75));  // comes later and is older
  for (const char* other : {"s2anta-q4", "top-k"}) {
    table.add(learned(25, other, 8, 0.875));
    table.add(learned(75, other, 8, 1));
  }
  table.add(learned(75, "s2anta-sys", 4, 1));
  table.add(learned(75, "s2anta-sys", 16, 1));
  EXPECT_EQ(table.learnedAccuracy("s2anta-sys", 8), 0.25);
  EXPECT_EQ(table.learnedAccuracy("s2anta-sys", 4), 1);
  EXPECT_EQ(table.learnedAccuracy("top-k", 8), 1);
  EXPECT_LT(table.learnedAccuracy("top-k", 16), 0);
  v1::EvaluationResult half = learned(75, "s2anta-sys", 8, 1);
  half.mutable_scores()->RemoveLast();
  table.add(half);
  EXPECT_EQ(table.learnedAccuracy("s2anta-sys", 8), 0.25);
}

// What an aggregator keeps: the newest two lines whole, of older ones the cell that curves show.
TEST(EvaluationTable, KeepsOldLearnedLinesAsPoints) {
  v1::Experiment e = gridOf(2, {"s2anta-sys"});
  e.mutable_spec()->mutable_policy()->set_total_budget(8);
  e.mutable_spec()->mutable_evaluation()->clear_budgets();
  for (const uint32_t budget : {8, 16}) e.mutable_spec()->mutable_evaluation()->add_budgets(budget);
  EvaluationTable table(e, EvaluationTable::Keep::kNewest);
  table.add(learned(0, "s2anta-sys", 8, 0.5, "uniform"));
  const auto add = [&](uint64_t version, std::initializer_list<uint64_t> budgets) {
    for (const uint64_t budget : budgets) table.add(learned(version, "s2anta-sys", budget, 0.25));
  };
  const auto kept = [&] {
    std::string text;
    for (const EvaluationCell& cell : table.cells()) {
      text += std::to_string(cell.version) + "@" + std::to_string(cell.total_budget) +
              (cell.tasks.empty() ? "-" : "") + " ";
    }
    return text;
  };
  add(1, {8, 16});
  add(2, {8});  // its other cell comes last
  add(3, {8, 16});
  add(4, {16, 8});
  EXPECT_EQ(kept(), "0@8 1@8- 2@8 3@8 3@16 4@8 4@16 ");
  add(2, {16});
  EXPECT_EQ(kept(), "0@8 1@8- 2@8- 3@8 3@16 4@8 4@16 ");
  for (const EvaluationCell& cell : table.cells()) EXPECT_EQ(cell.all.n, 2u);
  EXPECT_EQ(table.learnedAccuracy("s2anta-sys", 16), 0.25);
  for (uint64_t version = 5; version < 10'000; ++version) add(version, {8, 16});
  EXPECT_LT(table.cells().size(), 1010u);
  EXPECT_GT(table.cells().size(), 500u);
  EXPECT_EQ(table.cells()[1].version, 1u);
}

TEST(EvaluationTable, AddsUpByTaskWhateverTheOrder) {
  v1::Experiment e = gridOf(4, {"santa"});
  const auto first = graded(0, {1, 0.25});
  auto second = graded(2, {0, 0.25});
  second.mutable_scores(0)->set_other_score(1);  // not every task has another grader
  for (const bool swapped : {false, true}) {
    EvaluationTable table(e);
    table.add(swapped ? second : first);
    EXPECT_FALSE(table.cells().at(0).complete);
    table.add(compared("santa", 8, 0, {fidelityCell(0, 0, 1, 1, 0)}));  // not for this table
    table.add(replicated("santa", 8, 0, 1));                            // nor this
    table.add(swapped ? first : second);
    ASSERT_EQ(table.cells().size(), 1u);
    const EvaluationCell cell = table.cells()[0];
    EXPECT_TRUE(cell.complete);
    EXPECT_EQ(cell.all.n, 4u);
    EXPECT_DOUBLE_EQ(cell.all.mean(), 0.375);
    EXPECT_EQ(cell.all.scores, (ScoreCounts{{0, 1}, {0.25, 2}, {1, 1}}));
    EXPECT_DOUBLE_EQ(cell.tasks.at(0).mean(), 0.5);
    EXPECT_DOUBLE_EQ(cell.tasks.at(1).mean(), 0.25);
    EXPECT_EQ(cell.other.n, 1u);
    EXPECT_DOUBLE_EQ(cell.other.mean(), 1);
    EXPECT_EQ(cell.other.interval.low, wilson95(1, 1).low);
    // Equal scores: Wilson's interval. Two values: a bootstrap's, in a stream of its own.
    const Interval wilson = wilson95(0.5, 2);
    EXPECT_EQ(cell.tasks.at(1).interval.low, wilson.low);
    EXPECT_EQ(
        cell.all.interval.high,
        interval95(cell.all.scores, RandomStream(runStreams(e.spec()), Purpose::kBootstrap, 0))
            .high);
    EXPECT_DOUBLE_EQ(cell.reads.bytesShare(), 0.4);
    EXPECT_DOUBLE_EQ(cell.reads.keyShare(), 0.6);
    EXPECT_DOUBLE_EQ(cell.reads.valueRowsShare(), 0.1);
  }
  EXPECT_LT(KvReads().bytesShare(), 0);
}

TEST(EvaluationTable, PromptsReadInDifferentWaysAreDifferentCells) {
  EvaluationTable table(gridOf(2, {"dense"}));
  auto sparse = learned(0, "dense", 0, 1, "adaptive"), densely = learned(0, "dense", 0, 1, "dense");
  sparse.mutable_unit()->set_prefill("sale");
  setFields(
      "prompts: 2 blocks: 30 dense_blocks: 100 skipped_blocks: 5 key_bytes: 20 value_bytes: 10 "
      "dense_bytes: 60 seconds: 3 selection_seconds: 1",
      sparse.mutable_prefill());
  table.add(densely);
  table.add(sparse);
  auto cells = table.cells();
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].method, "dense");
  EXPECT_EQ(cells[0].prefill, "dense");
  EXPECT_LT(cells[0].prompts.density(), 0);  // nothing was counted
  EXPECT_LT(cells[0].prompts.seconds(), 0);
  EXPECT_EQ(cells[1].method, "sale + dense");
  EXPECT_EQ(cells[1].prefill, "sale");
  EXPECT_DOUBLE_EQ(cells[1].prompts.density(), 0.25);
  EXPECT_DOUBLE_EQ(cells[1].prompts.bytesShare(), 0.5);
  EXPECT_DOUBLE_EQ(cells[1].prompts.seconds(), 1.5);
  EXPECT_DOUBLE_EQ(cells[1].prompts.selectionSeconds(), 0.5);
  EXPECT_LT(cells[1].prompts.keptMass(), 0);  // not measured
  PrefillReads reads;
  v1::PrefillCounts kept;
  for (const double least : {0.5, 0.25, 0.75}) {
    kept.set_kept_queries(4);
    kept.set_kept_mass(4 * least + 0.5);
    kept.set_least_kept_mass(least);
    reads.add(kept);
  }
  reads.add({});  // unmeasured
  EXPECT_DOUBLE_EQ(reads.keptMass(), 0.625);
  EXPECT_DOUBLE_EQ(reads.leastKeptMass(), 0.25);
  // Each query for itself: value rows.
  PrefillReads rows;
  rows.add(messageFrom<v1::PrefillCounts>("unique_rows: 3 dense_rows: 12"));
  EXPECT_DOUBLE_EQ(rows.density(), 0.25);
}

}  // namespace
}  // namespace allot
