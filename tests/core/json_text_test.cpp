// JSON from elsewhere: what it may cost is bounded before it is a value.
#include "core/json_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace allot {
namespace {

std::string refusal(const std::string& text) {
  const auto value = parseJson(text, "x.json");
  if (value) return "taken";
  EXPECT_EQ(value.error().code, ErrorCode::kUsage);
  return value.error().message;
}

std::string nested(size_t levels, char open = '[', char close = ']') {
  return std::string(levels, open) + std::string(levels, close);
}

TEST(JsonText, DeepIsRefusedWithTheMemberThatItIsIn) {
  EXPECT_EQ(refusal(nested(64)), "taken");
  EXPECT_EQ(refusal(nested(65)), "x.json: it is nested deeper than 64 levels");
  EXPECT_EQ(refusal(R"({"a": 1, "b\n": )" + nested(1'900'000) + "}"),
            R"(x.json: "b\\n" is nested deeper than 64 levels)");
  // Side by side is not deep, and brackets within a text are none.
  std::string flat = "[0";
  for (int i = 0; i < 1000; ++i) flat += ",[[]]";
  EXPECT_EQ(refusal(flat + "]"), "taken");
  EXPECT_EQ(refusal("\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\""),
            "taken");
  // A bracket too many does not make room for others.
  EXPECT_EQ(refusal("]]]]" + nested(66)), "x.json: is not JSON at column 1");
}

TEST(JsonText, OfManyValuesNothingIsMade) {
  std::string many = "[";
  while (many.size() < 3 * kMostJsonValues) many += "[],";
  EXPECT_EQ(refusal(many + "0]"), "x.json: has more than the 8388608 values that are read");
  std::string commas(kMostJsonValues, ',');
  EXPECT_EQ(refusal("\"" + commas + "\""), "taken");
}

TEST(JsonText, AnythingElseIsNoJson) {
  for (const char* text : {"", " ", "{", "[", "\"", "\"\\", "{\"", "{\"a", "nul"}) {
    EXPECT_EQ(refusal(text), "x.json: is not JSON: it ends too early") << text;
  }
  for (const auto& [text, place] : {std::pair{"\xff", "column 1"},
                                    {"1 2", "column 3"},
                                    {"[1,]", "column 4"},
                                    {"[\"\xc3\"]", "column 4"},
                                    {"{\"a\":}", "column 6"},
                                    {"{\n\n \"a\": NaN}", "its line 3, column 7"}}) {
    EXPECT_EQ(refusal(text), std::string("x.json: is not JSON at ") + place) << text;
  }
  EXPECT_EQ(refusal(std::string("\0", 1)), "x.json: is not JSON at column 1");
  EXPECT_EQ(refusal("[1e999999]"),
            "x.json: has a number that is too large; at most 1.7e308 is read");
  EXPECT_EQ(parseJson("{\"a\": [1, null]}", "").value()["a"].size(), 2u);
}

TEST(JsonText, AMemberTwiceIsRefused) {
  EXPECT_EQ(refusal(R"([{"a": {"b": 1}, "b": [{"a": 2}, {"a": 3}]}, {"a": 4}])"), "taken");
  EXPECT_EQ(refusal(R"({"a": 1, "\u0061": 1})"), R"(x.json: has "a" twice; remove one)");
  EXPECT_EQ(refusal(R"([{"c": {"a": {}, "b": [], "a": 1}}])"),
            R"(x.json: has "a" twice; remove one)");
}

TEST(JsonText, QuotesAreOneLineOfAscii) {
  EXPECT_EQ(inQuotes("a\n\x1b\xc3"), "\"a\\n\\u001b\\ufffd\"");
  EXPECT_EQ(inQuotes(std::string(200, 'x')), "\"" + std::string(100, 'x') + "...\"");
}

}  // namespace
}  // namespace allot
