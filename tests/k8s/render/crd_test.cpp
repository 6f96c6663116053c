// The CustomResourceDefinition of kind Experiment, and the YAML that it is printed as.
#include "k8s/render/crd.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/spec/cluster_section.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"
#include "k8s/render/yaml_text.h"
#include "tests/readme.h"

namespace allot {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const json& schemaOf(const json& crd) {
  return crd.at("spec").at("versions").at(0).at("schema").at("openAPIV3Schema");
}

TEST(Crd, TheCommittedOneIsWhatAllotCrdPrints) {
  EXPECT_EQ(readSource("k8s/operator/crd.yaml"), yamlText(experimentCrd()))
      << "allot crd > k8s/operator/crd.yaml";
}

// Users' scripts and manifests have them: only a new version of the API may change one.
TEST(Crd, ItsNamesAreFrozen) {
  const json crd = experimentCrd();
  EXPECT_EQ(crd.at("metadata").at("name"), "experiments.allot.dev");
  EXPECT_EQ(crd.at("spec").at("group"), "allot.dev");
  EXPECT_EQ(crd.at("spec").at("versions").at(0).at("name"), "v1alpha1");
  const json names = {{"kind", "Experiment"},       {"listKind", "ExperimentList"},
                      {"plural", "experiments"},    {"singular", "experiment"},
                      {"shortNames", {"allotexp"}}, {"categories", {"allot"}}};
  EXPECT_EQ(crd.at("spec").at("names"), names);
}

TEST(Crd, EveryColumnShowsAFieldOfTheSchema) {
  const json crd = experimentCrd();
  for (const json& column : crd.at("spec").at("versions").at(0).at("additionalPrinterColumns")) {
    std::string path = column.at("jsonPath");
    if (!path.starts_with(".status.")) continue;
    const json* schema = &schemaOf(crd).at("properties").at("status");
    path = path.substr(0, path.find('[')).substr(sizeof(".status.") - 1) + ".";
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.')) {
      ASSERT_TRUE(schema->at("properties").contains(path.substr(0, dot))) << column;
      schema = &schema->at("properties").at(path.substr(0, dot));
      path.erase(0, dot + 1);
    }
  }
}

TEST(Crd, HasEveryKeyWithItsMeaning) {
  const json crd = experimentCrd();
  for (const auto* rules : {&specRules(), &clusterRules()}) {
    for (const SpecRule& rule : *rules) {
      const json* schema = &schemaOf(crd);
      for (size_t from = 0; from <= rule.path.size();) {
        const size_t dot = std::min(rule.path.find('.', from), rule.path.size());
        schema = &schema->at("properties").at(rule.path.substr(from, dot - from));
        from = dot + 1;
      }
      EXPECT_EQ(schema->at("description"), rule.meaning) << rule.path;
    }
  }
}

TEST(Crd, FixedKeysAreRefusedWithTheLaptopsSentence) {
  const json crd = experimentCrd();
  std::set<std::string> sentences;
  for (const json& rule : schemaOf(crd).at("x-kubernetes-validations")) {
    sentences.insert(rule.at("message"));
  }
  for (const SpecRule& rule : specRules()) {
    // What has no type in the schema is the operator's to refuse.
    const bool untyped = rule.type == SpecType::kNumber || rule.type == SpecType::kSchedules;
    EXPECT_EQ(sentences.contains(fixedSentence(rule.path)), !rule.live && !untyped) << rule.path;
  }
  EXPECT_FALSE(schemaOf(experimentCrd(CrdRules::kWithout)).contains("x-kubernetes-validations"));
}

TEST(YamlText, IsReadAsWhatWasWritten) {
  const json values = json::parse(R"([
    {}, [], "", "true", "off", "No", "0440", "1e3", "a: b", "# a", "- a", "a\nb\n", "a\nb", "a\n\n",
    " a\nb\n", "a \nb\n", "\na", "a\n\nb\n", "a\tb\nc\n", "\u0085", "a\n\u2028 b\n", "\u0001",
    "\\", "{}", "*a", "~", "null", 0, -1, 1.5, true, null, {"a": {"b": [1, "2", {"c": [[1], {}]}]}},
    {"a: b": "c", "": "d", "on": "e"}, [{"a": 1, "b": [2]}, "c"]
  ])");
  for (const json& value : values) {
    const std::string text = yamlText(json{{"x", value}, {"y", json::array({value})}});
    const std::vector<json> read = yamlObjects(text);
    ASSERT_EQ(read.size(), 1u) << text;
    EXPECT_EQ(read[0].at("x"), value) << text;
    EXPECT_EQ(read[0].at("y").at(0), value) << text;
  }
}

TEST(YamlText, PlainValuesAreReadAsKubectlDoes) {
  const auto objects = yamlObjects(
      "{a: 0440, b: \"0440\", c: 1Gi, d: true, e: \"true\", f: }\n---\n---\nb: [1, 2]\n");
  EXPECT_THAT(
      objects,
      ElementsAre(
          json{{"a", 288}, {"b", "0440"}, {"c", "1Gi"}, {"d", true}, {"e", "true"}, {"f", nullptr}},
          json{{"b", {1, 2}}}));
}

}  // namespace
}  // namespace allot
