// The recall generator against its Python original, byte for byte.
#include "worker/tasks/recall.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/digest.h"

namespace allot {
namespace {

using nlohmann::json;

// What recall_oracle.py prints for 0, the edges of 32 and 64 bits and 205 scattered seeds.
constexpr const char* kDigest = "baca24c1841cc1940da7786060aad36bfee4dde267a7562e70b1d0c8cb98722f";
constexpr int kScatteredSeeds = 205;

std::vector<uint64_t> oracleSeeds() {
  std::vector<uint64_t> seeds = {0,           1,           0x80000000,         0xffffffff,
                                 0x100000000, 0x100000001, 0x7fffffffffffffff, 0x8000000000000000,
                                 UINT64_MAX};
  for (uint64_t i = 1; i <= kScatteredSeeds; ++i) seeds.push_back(i * 0x9e3779b97f4a7c15U);
  return seeds;
}

RecallSample makeSample(uint64_t seed, int64_t words, bool freq) {
  PythonRandom random(seed);
  return freq ? makeRecallFreq(random, words) : makeRecall(random, words);
}

bool havePython() { return std::system("python3 -c 'import random' >/dev/null 2>&1") == 0; }

// The oracle's answer, made once for all tests of the process.
const json& oracle() {
  static const json answer = [] {
    const std::string source = ALLOT_SOURCE_DIR;
    const std::string command = "python3 '" + source + "/tests/golden/recall_oracle.py' '" +
                                source + "/experiments/models/recall-7m'";
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    std::array<char, 65536> chunk;
    while (const size_t got = pipe ? fread(chunk.data(), 1, chunk.size(), pipe.get()) : 0) {
      text.append(chunk.data(), got);
    }
    return json::parse(text, nullptr, false);
  }();
  return answer;
}

class AgainstPython : public testing::Test {
 protected:
  void SetUp() override {
    if (!havePython()) {
      ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << "python3 is missing";
      GTEST_SKIP() << "needs python3 (Debian package python3); RecallPinned tests the same bytes";
    }
    ASSERT_TRUE(oracle().is_object()) << "recall_oracle.py did not print JSON";
  }
};

TEST_F(AgainstPython, RandomDrawsTheSameNumbers) {
  ASSERT_FALSE(oracle()["random"].empty());
  for (const json& expected : oracle()["random"]) {
    const auto seed = expected["seed"].get<uint64_t>();
    SCOPED_TRACE(seed);
    PythonRandom random(seed);
    for (const json& value : expected["random"]) ASSERT_EQ(random.random(), value.get<double>());
    for (int k = 0; k <= 64; ++k) {
      ASSERT_EQ(random.getrandbits(k), expected["getrandbits"][k].get<uint64_t>()) << k;
    }
    for (int k = 0; k < 62; ++k) {
      const auto value = expected["randrange"][k].get<int64_t>();
      ASSERT_EQ(random.randrange(-5, int64_t{1} << k), value) << k;
    }
    for (int k = 0; k < 50; ++k) {
      ASSERT_EQ(random.randint(-k, k), expected["randint"][k].get<int64_t>()) << k;
    }
    std::vector<int> items;
    for (int k = 1; k < 50; ++k) {
      items.push_back(k);
      ASSERT_EQ(random.choice(items), expected["choice"][k - 1].get<int>()) << k;
    }
    std::vector<int> shuffled(100);
    for (int i = 0; i < 100; ++i) shuffled[i] = i;
    random.shuffle(shuffled);
    EXPECT_EQ(shuffled, expected["shuffle"].get<std::vector<int>>());
    EXPECT_EQ(random.choices(37, 200), expected["choices"].get<std::vector<size_t>>());
    const std::vector<double> weights = {9, 0.1, 0, 4, 1, 0};
    EXPECT_EQ(random.choices(weights, 200), expected["weighted"].get<std::vector<size_t>>());
    EXPECT_EQ(random.getrandbits(64), expected["last"].get<uint64_t>());
  }
}

TEST_F(AgainstPython, ContextsAndQuestionsAreTheSameBytes) {
  std::map<std::string, int> ours, theirs;
  int tied = 0;
  for (const json& expected : oracle()["samples"]) {
    const bool freq = expected["make"] == "make_freq";
    const auto seed = expected["seed"].get<uint64_t>();
    const auto words = expected["words"].get<int64_t>();
    SCOPED_TRACE(testing::Message() << expected["make"] << " seed " << seed << " words " << words);
    const RecallSample sample = makeSample(seed, words, freq);
    ASSERT_EQ(sample.context, expected["context"].get<std::string>());
    ASSERT_EQ(sample.questions.size(), expected["questions"].size());
    for (size_t i = 0; i < sample.questions.size(); ++i) {
      const RecallQuestion& question = sample.questions[i];
      ASSERT_EQ(question.text, expected["questions"][i][0].get<std::string>());
      ASSERT_EQ(question.task, expected["questions"][i][2].get<std::string>());
      ASSERT_EQ(question.ambiguous, expected["tied"].get<bool>());
      if (!question.ambiguous) {
        ASSERT_EQ(question.answer, expected["questions"][i][1].get<std::string>());
      }
      ++ours[question.task];
      ++theirs[expected["questions"][i][2].get<std::string>()];
      tied += question.ambiguous ? 1 : 0;
    }
  }
  EXPECT_EQ(oracle()["samples"].size(), oracleSeeds().size() * 6);
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(ours.size(), 6U);
  EXPECT_GT(tied, 0);
  EXPECT_LT(tied, ours["freq"]);
  EXPECT_EQ(oracle()["digest"], kDigest);
}

TEST(RecallPinned, SameBytesWithoutPython) {
  std::string bytes;
  for (uint64_t seed : oracleSeeds()) {
    for (int64_t words : {120, 373, 700}) {
      for (bool freq : {false, true}) {
        const RecallSample sample = makeSample(seed, words, freq);
        bytes += sample.context + "\n";
        for (const RecallQuestion& question : sample.questions) {
          const std::string answer = question.ambiguous ? "" : question.answer;
          bytes += question.task + "|" + question.text + "|" + answer + "\n";
        }
      }
    }
  }
  EXPECT_EQ(sha256Hex(bytes), kDigest);
}

TEST(Recall, BudgetsBelowTheMinimumStillMakeEveryTask) {
  for (int64_t words : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{39}}) {
    std::map<std::string, int> tasks;
    for (const RecallQuestion& question : makeSample(3, words, false).questions) {
      ++tasks[question.task];
    }
    EXPECT_EQ(tasks.size(), 5U) << words;
    EXPECT_EQ(makeSample(3, words, true).questions.size(), 1U) << words;
  }
}

}  // namespace
}  // namespace allot
