#include "cli/method_card.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "allot/kernels/method.h"
#include "tests/readme.h"

namespace allot {
namespace {

using nlohmann::json;

EvaluationCell cell(const std::string& method, const std::string& schedule, uint64_t budget,
                    double right, uint64_t read_bytes) {
  EvaluationCell made;
  made.prefill = "dense";
  made.method = method;
  made.schedule_name = schedule;
  made.total_budget = budget;
  made.complete = true;
  made.all = {100, right, {}, {right / 100 - 0.1, right / 100 + 0.1}};
  made.reads.dense_bytes = 1000;
  made.reads.key_bytes = read_bytes;
  made.decode_steps = 1;
  return made;
}

EvaluationCell byTask(EvaluationCell made, double first, double second) {
  made.tasks[0] = {50, first, {}, {}};
  made.tasks[1] = {50, second, {}, {}};
  return made;
}

CardRun run(std::vector<EvaluationCell> cells) {
  CardRun made;
  made.name = "01RUN";
  made.experiment.set_name("sweep");
  v1::Spec& spec = *made.experiment.mutable_spec();
  spec.mutable_model()->set_path("models/small");
  spec.mutable_task()->set_suite("recall");
  spec.mutable_task()->add_tasks("niah");
  spec.mutable_task()->add_tasks("track");
  made.cells = std::move(cells);
  return made;
}

TEST(MethodCard, OthersAtEqualBytesAreTheTwoBestBetweenTheirBudgets) {
  const std::vector<CardRow> rows = cardRows(
      run({cell("dense", "dense", 0, 93, 1000), cell("s2anta-q4", "uniform", 8, 80, 200),
           cell("top-k", "uniform", 8, 40, 100), cell("top-k", "uniform", 16, 60, 400),
           cell("santa", "uniform", 8, 10, 200), cell("quest", "uniform", 8, 70, 100),
           cell("quest", "uniform", 16, 90, 200), cell("s2anta-sys", "uniform", 8, 99, 201),
           cell("s2anta-flash", "uniform", 8, 99, 199),
           cell("s2anta-strat", "learned", 8, 99, 200)}),
      "s2anta-q4");
  ASSERT_EQ(rows.size(), 1u);
  // Neither what reads more or less at every budget, nor learned schedules, nor dense attention.
  ASSERT_EQ(rows[0].rivals.size(), 2u);
  EXPECT_EQ(rows[0].rivals[0].method, "quest");
  EXPECT_DOUBLE_EQ(rows[0].rivals[0].accuracy, 0.9);
  // Half way from 100 bytes to 400 by their logarithm.
  EXPECT_EQ(rows[0].rivals[1].method, "top-k");
  EXPECT_NEAR(rows[0].rivals[1].accuracy, 0.5, 1e-12);
}

TEST(MethodCard, RowsAreCompleteAndTheNewest) {
  EvaluationCell open = cell("s2anta-sys", "uniform", 16, 50, 100);
  open.complete = false;
  EvaluationCell old = cell("s2anta-sys", "learned", 8, 50, 100), newest = old;
  newest.version = 25;
  newest.all.sum = 70;
  const std::vector<CardRow> rows =
      cardRows(run({cell("dense", "dense", 0, 93, 1000),
                    cell("s2anta-sys tileSize=64", "uniform", 8, 35, 100),
                    cell("s2anta-sys", "uniform", 8, 36, 100), open, old, newest,
                    cell("s2anta-sys", "oneHot-01", 8, 20, 100),
                    cell("s2anta-systematic", "uniform", 8, 1, 100)}),
               "s2anta-sys");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].cell.schedule_name, "learned");
  EXPECT_EQ(rows[0].cell.version, 25u);
  EXPECT_EQ(rows[1].cell.method, "s2anta-sys");
  EXPECT_EQ(rows[2].cell.method, "s2anta-sys tileSize=64");
  ASSERT_TRUE(rows[1].over_dense);
  EXPECT_NEAR(rows[1].over_dense->mean, 0.36 - 0.93, 1e-12);
  EXPECT_FALSE(rows[1].over_dense->interval);
}

TEST(MethodCard, TheWorstTaskLosesMostToDenseAttention) {
  // The second is answered better, and has lost more.
  const std::vector<CardRow> rows =
      cardRows(run({byTask(cell("dense", "dense", 0, 75, 1000), 26, 49),
                    byTask(cell("top-k", "uniform", 8, 60, 100), 25, 35)}),
               "top-k");
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_TRUE(rows[0].worst);
  EXPECT_EQ(rows[0].worst->name, "track");
  EXPECT_DOUBLE_EQ(rows[0].worst->accuracy, 0.7);
  EXPECT_DOUBLE_EQ(rows[0].worst->dense, 0.98);
}

// Errors of outputs are the decode method's, whatever read the prompts.
TEST(MethodCard, ErrorsOfOutputsAreOfTheMethodThatMadeThem) {
  EvaluationCell both = cell("sale + s2anta-prop", "uniform", 8, 60, 100);
  both.prefill = "sale";
  CardRun measured = run({cell("dense", "dense", 0, 93, 1000), both});
  FidelitySummary errors;
  errors.method = both.method;
  errors.schedule_name = "uniform";
  errors.total_budget = 8;
  errors.complete = true;
  measured.fidelity.push_back(errors);
  const auto has = [&](const std::string& method) {
    const auto card = methodCard(method, {measured}, {});
    EXPECT_TRUE(card) << card.error().message;
    return card && card->find("Against dense attention's outputs") != std::string::npos;
  };
  EXPECT_TRUE(has("s2anta-prop"));
  EXPECT_FALSE(has("sale"));
}

TEST(MethodCard, AMethodOfPromptsIsComparedWithOthersUnderTheSameAnswers) {
  const auto prompts = [](const std::string& prefill, const std::string& decode, double right,
                          double bytes) {
    EvaluationCell made = cell(prefill + " + " + decode, "uniform", 8, right, 100);
    made.prefill = prefill;
    made.prompts.sums.set_dense_bytes(1000);
    made.prompts.sums.set_key_bytes(static_cast<uint64_t>(bytes));
    return made;
  };
  const std::vector<CardRow> rows =
      cardRows(run({prompts("sale", "s2anta-sys", 80, 300),
                    prompts("sample-attention", "s2anta-sys", 70, 300),
                    prompts("sampled-blocks", "top-k", 99, 300)}),
               "sale");
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_EQ(rows[0].rivals.size(), 1u);
  EXPECT_EQ(rows[0].rivals[0].method, "sample-attention");
}

TEST(MethodCard, IsMarkdownThatSaysWhatWasMeasured) {
  CardRun measured =
      run({cell("dense", "dense", 0, 93, 1000), cell("top-k", "uniform", 8, 60, 100)});
  measured.difference = [](const EvaluationCell&, const EvaluationCell&) {
    return PairedDifference{-0.33, {-0.42, -0.24}, 100};
  };
  const Result<std::string> card = methodCard("top-k", {measured}, {});
  ASSERT_TRUE(card) << card.error().message;
  EXPECT_NE(card->find("# top-k\n"), std::string::npos);
  EXPECT_NE(card->find("protocol A"), std::string::npos);
  EXPECT_NE(card->find("| top-k | uniform | 8 | 0.600 [0.500, 0.700] | -0.330 [-0.420, -0.240] | "
                       "10.0 % | 0.0001 of 0.001 MB |"),
            std::string::npos)
      << *card;
}

TEST(MethodCard, RefusesWhatIsNoMethodAndWhatWasNotMeasured) {
  const CardRun measured = run({cell("top-k", "uniform", 8, 60, 100)});
  const auto unknown = methodCard("topk", {measured}, {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "topk is no method: `allot methods` lists them");
  const auto missing = methodCard("quest", {measured}, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("nothing of quest was measured here"), std::string::npos);
}

json figure(const char* scores, const char* method, double milliseconds, json budget = nullptr) {
  return {{"scores", scores},
          {"method", method},
          {"milliseconds", milliseconds},
          {"budget", std::move(budget)}};
}

TEST(BreakEven, IsTheLengthFromWhichOnAMethodIsFaster) {
  const auto shape = [](int keys, double dense, double method) {
    return json{{"rows", 16},
                {"keys", keys},
                {"figures",
                 {figure("flat", "dense", dense), figure("flat", "top-k", method, 128),
                  figure("peaked", "top-k", 0.001, 128)}}};
  };
  // Faster at 1024 by luck, slower at 4096, faster from 8192 on.
  const json bench = {
      {"device", {{"name", "a GPU"}}},
      {"heads", 12},
      {"kvHeads", 2},
      {"shapes", {shape(8192, 4, 3), shape(1024, 1, 0.9), shape(4096, 2, 2), shape(32768, 16, 4)}}};
  const auto found = breakEvens(bench, "top-k");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1u);  // no dense attention was timed on peaked scores
  EXPECT_EQ((*found)[0].device, "a GPU");
  EXPECT_EQ((*found)[0].of, "12/2 heads, 16 rows, flat, top-k, S = 128");
  EXPECT_EQ((*found)[0].keys, 8192u);
  EXPECT_EQ((*found)[0].least, 1024u);
  EXPECT_EQ((*found)[0].most, 32768u);
  EXPECT_DOUBLE_EQ((*found)[0].times, 4);
  EXPECT_TRUE(breakEvens(bench, "quest")->empty());
}

TEST(BreakEven, IsNowhereWhereTheLongestIsSlower) {
  const json bench = {{"tables",
                       {{{"threads", 1},
                         {"keys", 1024},
                         {"scores", "flat"},
                         {"methods",
                          {{{"method", "dense"}, {"milliseconds", 1.0}},
                           {{"method", "quest pageSize=64 @1024"}, {"milliseconds", 2.0}}}}}}}};
  const auto found = breakEvens(bench, "quest");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*found)[0].keys, 0u);
  EXPECT_EQ((*found)[0].of, "1 thread, flat, quest pageSize=64 @1024");
  const auto card = methodCard("quest", {}, *found);
  ASSERT_TRUE(card);
  EXPECT_NE(card->find("nowhere up to 1024"), std::string::npos);
}

// Each begins with what the method is, and ends with what these benches say, if they have it.
TEST(BreakEven, OfTheCardsThatAreKeptAreThoseOfTheBenchesBesideThem) {
  const std::string folder = "experiments/models/qwen25-1-5b/cards/";
  size_t timed = 0;
  for (const std::string_view method : kernels::methodNames()) {
    const std::string name(method), file = folder + name + ".md";
    if (!std::filesystem::exists(ALLOT_SOURCE_DIR "/" + file)) continue;
    SCOPED_TRACE(file);
    std::vector<BreakEven> found;
    for (const char* const bench : {"h200-12-2.json", "h200-32-8.json"}) {
      const auto lengths = breakEvens(json::parse(readSource(folder + bench)), name);
      ASSERT_TRUE(lengths);
      found.insert(found.end(), lengths->begin(), lengths->end());
    }
    const std::string card = readSource(file);
    EXPECT_EQ(card.find("\n## Break-even length\n") != std::string::npos, !found.empty());
    if (found.empty()) continue;
    ++timed;
    const auto expected = methodCard(name, {}, found);
    ASSERT_TRUE(expected);
    const size_t cut = expected->find("\n## Break-even length\n");
    EXPECT_TRUE(card.starts_with(expected->substr(0, cut)));
    EXPECT_TRUE(card.ends_with(expected->substr(cut)));
  }
  EXPECT_EQ(timed, 8u);
}

TEST(BreakEven, RefusesWhatNoBenchWrote) {
  for (const char* text :
       {"{}", R"({"shapes": 1})", R"({"shapes": [{}], "device": {"name": 7}})",
        R"({"tables": [{"threads": "x"}]})",
        R"({"tables": [{"threads": 1, "scores": "flat", "methods": {"a": 1}}]})"}) {
    const auto found = breakEvens(json::parse(text), "top-k");
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().message, "is not what `allot bench kernels --json FILE` writes");
  }
}

}  // namespace
}  // namespace allot
