// The graders of LongBench (v1) and InfiniteBench against what the published ones give
// (tests/golden/make_grader_cases.py).
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/worker/grader_cases.h"
#include "worker/model/nfc.h"
#include "worker/tasks/text_overlap.h"

namespace allot {
namespace {

TEST(BenchmarkGraders, GiveWhatThePublishedOnesDo) {
  if (!nfcAvailable()) {
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << "built without libutf8proc";
    GTEST_SKIP() << "needs a build with libutf8proc (Debian package libutf8proc-dev)";
  }
  std::ifstream file(ALLOT_SOURCE_DIR "/tests/golden/grader_cases.json");
  std::map<std::string, std::vector<Case>> tables;
  for (const nlohmann::json golden = nlohmann::json::parse(file); const auto& row : golden) {
    tables[row[0].get<std::string>()].push_back({row[1].get<std::vector<std::string>>(),
                                                 row[3].get<std::string>(), row[4].get<double>(),
                                                 row[2].get<std::vector<std::string>>()});
  }
  EXPECT_EQ(tables.size(), 16U);
  for (const auto& [name, cases] : tables) {
    check(name.c_str(), cases);
    // Without a reference there is no score.
    EXPECT_EQ(findGrader(name)({}, cases[0].completion), 0) << name;
  }
}

// What no tokenizer should write and no file should hold; a score is a score.
TEST(BenchmarkGraders, TakeAnyBytes) {
  const std::string any = "a\xff\xc3. the\xe2\x80 5 \xf0\x9f\n" + kNul + " B\xed\xa0\x80";
  for (const std::string& name : implementedGraders()) {
    const Grader grader = findGrader(name);
    if (grader == nullptr) continue;  // what it would run is for the sandbox's tests
    for (const std::string& text : {any, std::string("\xff"), std::string(), kNul}) {
      for (const std::vector<std::string>& answers :
           {std::vector<std::string>{any, "B"}, {text, text}, {"5"}, {"x"}}) {
        const double score = grader({answers, answers}, text);
        EXPECT_TRUE(score >= 0 && score <= 1) << name << ": " << score;
      }
    }
  }
  EXPECT_EQ(findGrader("f1")({{"x\xff"}}, "the x\xff"), 1);
  EXPECT_EQ(findGrader("longbench-code")({{"\xff\xfe"}}, "\xff\xfd"), 0.5);
}

// Long texts cost no more than the bound of words allows, and are equal up to it.
TEST(BenchmarkGraders, LookAtSoManyWords) {
  std::string text, longer;
  for (size_t i = 0; i < kMostUnits; ++i) text += "w" + std::to_string(i) + " ";
  for (size_t i = 0; i < (size_t{1} << 18); ++i) longer += "v" + std::to_string(i) + " ";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NEAR(rougeL(text + longer, text + text), 1, 1e-7);
  EXPECT_EQ(rougeLsum(text + longer, text + text), 1);
  EXPECT_LT(rougeL(longer, text), 1e-3);
  const std::string characters(kMostUnits, 'x');
  EXPECT_EQ(editSimilarity(characters + longer, characters + text), 1);
  EXPECT_EQ(tokenF1(longer, longer), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace allot
