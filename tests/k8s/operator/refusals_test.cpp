// A mistake in an experiment is told in the same words on a laptop, which reads a file, and in a
// cluster, which has an object: every key of the table with every kind of value.
#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "core/spec/spec_rules.h"
#include "k8s/operator/plan.h"
#include "k8s/render/yaml_text.h"
#include "tests/k8s/operator/experiments.h"

namespace allot {
namespace {

using nlohmann::json;

// As kubectl has it of a file.
json fileOf(const json& object) {
  return {{"apiVersion", object.at("apiVersion")},
          {"kind", object.at("kind")},
          {"metadata", {{"name", object.at("metadata").at("name")}}},
          {"spec", object.at("spec")}};
}

std::string saidOf(const Result<ExperimentObject>& read) {
  return read ? "" : read.error().message;
}

// Which an object has none of.
std::string withoutLine(const std::string& sentence) {
  return std::regex_replace(sentence, std::regex("^x(:[0-9]+)+:"), "x:");
}

// The sentence, which has to be one; "" where the object can be run.
std::string sameSentence(const json& object) {
  const std::string name = object.at("metadata").at("name");
  const std::string cluster = saidOf(readExperimentObject(object));
  const std::string laptop =
      withoutLine(saidOf(parseExperimentObject(yamlText(fileOf(object)), name)));
  EXPECT_EQ(cluster, laptop) << object.at("spec").dump();
  return cluster;
}

json& at(json* object, const std::string& path) {
  json* place = object;
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    if (!place->is_object()) *place = json::object();
    place = &(*place)[path.substr(from, dot - from)];
    from = dot + 1;
  }
  return *place;
}

TEST(Refusals, AreTheSameSentencesOfAFileAndOfAnObject) {
  json values = json::parse(R"([
    null, true, 0, -1, 3, 1.5, 18446744073709551615, "", "x", "0.05", "off", "a: b # c", "two\nlines",
    "\u001b[31m", [], [1, 2], ["niah", "niah"], {}, {"a": 1}
  ])");
  values.push_back(std::string(5000, 'y'));
  std::set<std::string> sentences;
  size_t refused = 0;
  for (const auto* rules : {&specRules(), &clusterRules()}) {
    for (const SpecRule& rule : *rules) {
      for (const json& value : values) {
        json object = test::experiment("x");
        at(&object, rule.path) = value;
        const std::string sentence = sameSentence(object);
        if (sentence.empty()) continue;
        ++refused;
        sentences.insert(sentence);
        EXPECT_EQ(sentence.find('\x1b'), std::string::npos) << rule.path;
        EXPECT_EQ(sentence.find('\n'), std::string::npos) << rule.path;
      }
      json object = test::experiment("x");
      at(&object, rule.path + "x") = 1;  // a slip of the finger
      EXPECT_THAT(sameSentence(object), testing::HasSubstr("did you mean")) << rule.path;
    }
  }
  // Else a parser that takes everything would pass.
  EXPECT_GT(refused, 500u);
  EXPECT_GT(sentences.size(), 400u);
}

TEST(Refusals, OfAnEmptyOrForeignObjectAreSentencesToo) {
  for (const char* const spec : {"null", "7", "[]", R"("x")", "{}"}) {
    json object = test::experiment("x");
    object["spec"] = json::parse(spec);
    EXPECT_FALSE(sameSentence(object).empty()) << spec;
  }
  json object = test::experiment("x");
  object.erase("spec");
  EXPECT_FALSE(readExperimentObject(object));
}

}  // namespace
}  // namespace allot
