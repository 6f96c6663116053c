// Hostile and mutated experiment files: whatever the bytes, parseExperiment answers, soon, with an
// experiment that keeps its promises or with one sentence.
#include <chrono>
#include <random>

#include "core/spec/spec.h"
#include "tests/core/spec_texts.h"

namespace allot {
namespace {

std::string said(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return messageOf(parseExperiment(yaml, "x.yaml", overrides));
}

// Texts that are cheap to write and could be dear to read.
TEST(SpecFuzz, HostileTextsAreCheap) {
  const size_t size = 1 << 20;
  const auto repeated = [&](const std::string& unit) {
    std::string text;
    while (text.size() + unit.size() <= size) text += unit;
    return text;
  };
  for (const char* unit :
       {"[",   "{",   "- ",  "? ", "a: ",   "{a: ", "\"",           "'",  "a",    "1,",
        "[1,", "*a ", "&a ", "!",  "%",     "|\n",  "- a\n",        ": ", "a:\n", "---\n",
        "\n",  "#",   "[]",  ",",  "? a\n", "\\",   "\xef\xbb\xbf", "{a", "a\n ", "- - "}) {
    const auto start = std::chrono::steady_clock::now();
    const std::string text = repeated(unit);
    EXPECT_NE(said(text), "") << unit;
    EXPECT_NE(said("a: [" + text), "") << unit;
    EXPECT_NE(said(text, {"spec." + text.substr(0, 1000) + "=1"}), "") << unit;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 30) << "repeated: " << unit;
  }
  std::string keys;
  for (int i = 0; i < 150000; ++i) keys += "k" + std::to_string(i) + ":\n";
  keys.resize(keys.size() < size ? keys.size() : size);
  EXPECT_THAT(said(keys), HasSubstr("more than 100000 values"));
}

// One random change of a text: bytes, pieces, or a token that YAML or the parser treats specially.
std::string mutated(std::string text, std::mt19937& random) {
  static const std::vector<std::string> tokens = {
      "&a ",     "*a",     "!!binary ", "? ",          ": ",
      "- ",      "[",      "]",         "{",           "}",
      "\"",      "'",      "|\n",       ">",           "%",
      "---\n",   "...\n",  "#",         "~",           "null",
      "-1",      "0",      "1e400",     "nan",         "99999999999999999999",
      "\t",      "\\x00",  "\"\\_\"",   "\"\\uD800\"", "<<: ",
      "learned", "oneHot", "[1, 2]",    "\xc3",        "\r",
      ","};
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : random() % bound; };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(text.size());
    const size_t what = below(6);
    if (what == 0) text[at] = static_cast<char>(below(256));
    if (what == 1) text.insert(at, 1, static_cast<char>(32 + below(95)));
    if (what == 2) text.insert(at, tokens[below(tokens.size())]);
    if (what == 3) text.erase(at, 1 + below(40));
    if (what == 4) text.insert(below(text.size()), text.substr(at, below(200)));
    if (what == 5) text.replace(at, 1 + below(5), tokens[below(tokens.size())]);
    if (text.empty()) text = " ";
  }
  return text;
}

TEST(SpecFuzz, MutatedFilesGiveAnExperimentOrASentence) {
  const std::string example = exampleText();
  std::mt19937 random(20240607);
  size_t accepted = 0;
  size_t refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const std::string text = mutated(example, random);
    const auto result = parseExperiment(text, "x.yaml");
    if (!result) {
      ++refused;
      const std::string& message = result.error().message;
      ASSERT_EQ(result.error().code, ErrorCode::kUsage);
      ASSERT_THAT(message, StartsWith("x.yaml:"));
      ASSERT_LT(message.size(), 1000u);
      for (const char c : message) ASSERT_FALSE(c >= 0 && c < 0x20) << message;
      continue;
    }
    ++accepted;
    const v1::Spec& spec = result->spec();
    ASSERT_GE(spec.policy().total_budget(), 1u);
    ASSERT_LE(spec.policy().total_budget(), 1000000u);
    ASSERT_LE(spec.rollout().questions_per_episode(), spec.task().train_questions());
    ASSERT_GT(spec.evaluation().budgets_size(), 0);
    v1::Experiment back;
    ASSERT_TRUE(back.ParseFromString(canonicalBytes(*result)));
    ASSERT_EQ(canonicalBytes(back), canonicalBytes(*result));
    (void)checkAgainstModel(*result, 8);
  }
  // Neither side is a formality.
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(refused, 1000u);
}

TEST(SpecFuzz, MutatedOverridesGiveAnExperimentOrASentence) {
  const std::string example = exampleText();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const SpecKey& key = specKeys()[random() % specKeys().size()];
    const auto result =
        parseExperiment(example, "x.yaml", {mutated(key.path + "=[8, uniform]", random)});
    const bool told = result || !result.error().message.empty();
    ASSERT_TRUE(told);
  }
}

}  // namespace
}  // namespace allot
