// What older builds stored: the table of keys says what their absence meant, and stays as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "core/digest.h"
#include "core/spec/choices.h"
#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_keys.h"
#include "core/spec/spec_schema.h"

namespace allot {
namespace {

using testing::HasSubstr;

const std::string kGolden = ALLOT_SOURCE_DIR "/tests/golden/keys.txt";

struct Known {
  uint32_t since = 0;
  std::string before;
};

// "2 spec.evaluation.measures [accuracy]"; of the first schema without the third word.
std::map<std::string, Known> goldenKeys() {
  std::map<std::string, Known> keys;
  std::ifstream file(kGolden);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string path;
    Known known;
    words >> known.since >> path >> known.before;
    EXPECT_TRUE(keys.emplace(path, known).second) << path << " is there twice";
  }
  return keys;
}

v1::Experiment parsed(const std::vector<std::string>& settings = {},
                      uint32_t schema = kSpecSchema) {
  const auto experiment = parseStoredExperiment(
      "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
      "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n  update: {}\n",
      "tiny.yaml", settings, schema);
  EXPECT_TRUE(experiment) << experiment.error().message;
  return experiment ? *experiment : v1::Experiment();
}

// Builds have stored experiments by this list: what is in it cannot change.
TEST(Schema, EveryKeySaysWhatItsAbsenceMeant) {
  std::map<std::string, Known> golden = goldenKeys();
  for (const SpecRule& rule : specRules()) {
    const auto known = golden.find(rule.path);
    if (known == golden.end()) {
      ADD_FAILURE()
          << rule.path << " is a new key: runs and exports that exist do not have it. "
          << "Raise kSpecSchema in core/spec/spec_schema.h, say in kAdded of "
          << "core/spec/spec_keys.cpp since which schema there is the key and what builds "
          << "before it did, and add the line `" << kSpecSchema + 1 << " " << rule.path
          << " THAT` to " << kGolden;
      continue;
    }
    EXPECT_EQ(rule.since, known->second.since) << rule.path;
    EXPECT_EQ(rule.before, known->second.before) << rule.path;
    EXPECT_LE(rule.since, kSpecSchema) << rule.path;
    golden.erase(known);
  }
  for (const auto& [path, known] : golden) {
    ADD_FAILURE() << path << " is gone: experiments that hold it could not be read any more";
  }
}

// Else one could not tell a key that is absent from one that has this value.
TEST(Schema, AKeyWhoseAbsenceMeansSomethingIsNeverEmptyOrZero) {
  for (const SpecRule& rule : specRules()) {
    if (rule.since == 1) {
      EXPECT_EQ(rule.before, "") << rule.path;
      continue;
    }
    v1::Experiment without = asOfSchema(parsed(), rule.since - 1);
    v1::Experiment with = without;
    EXPECT_TRUE(readRule(rule, rule.before, fieldOf(rule, *with.mutable_spec()))) << rule.path;
    fieldOf(rule, *without.mutable_spec());  // makes the section
    if (canonicalBytes(with) == canonicalBytes(without)) continue;
    const SpecField at = fieldOf(rule, *with.mutable_spec());
    const char* const empty = at.field->is_repeated()                            ? "[]"
                              : at.field->cpp_type() == at.field->CPPTYPE_STRING ? "\"\""
                                                                                 : "0";
    EXPECT_FALSE(readRule(rule, empty, at))
        << rule.path << " may be " << empty << ", so its field has to be `optional`";
  }
}

// A suite with keys of its own, which came after it.
TEST(Schema, WhatBuildsStoredOfMmluStaysAsItWas) {
  const std::vector<std::string> mmlu = {
      "spec.task={suite: mmlu, path: f, contextTokens: 2048, trainQuestions: 64, "
      "heldOutQuestions: 64, maxNewTokens: 8}"};
  for (uint32_t schema = 5; schema <= kSpecSchema; ++schema) {
    const v1::Experiment now = parsed(mmlu, schema);
    v1::Experiment completed = asOfSchema(now, schema);
    complete(&completed);
    EXPECT_EQ(canonicalBytes(completed), canonicalBytes(now)) << schema;
    const auto longer = withSettings(completed, {"spec.update.maxUpdates=151"});
    ASSERT_TRUE(longer) << longer.error().message;
    EXPECT_EQ(specChanges(completed, *longer).size(), 1u) << schema;
    const auto named = withSettings(completed, {"spec.task.split=test"});
    ASSERT_TRUE(named) << named.error().message;
    EXPECT_TRUE(specChanges(completed, *named).empty()) << schema;
  }
}

TEST(Schema, WhatAnyBuildStoredIsCompletedAndKeepsItsDigest) {
  for (uint32_t schema = 1; schema <= kSpecSchema; ++schema) {
    // What a build of that schema made of the file.
    const v1::Experiment stored = asOfSchema(parsed({}, schema), schema);
    EXPECT_EQ(schemaOf(stored), schema == 4 ? 5 : schema);  // (5 has only keys that are "")
    v1::Experiment completed = stored;
    complete(&completed);
    EXPECT_EQ(canonicalBytes(completed), canonicalBytes(parsed({}, schema))) << schema;
    EXPECT_EQ(specDigest(asOfSchema(completed, schema)), specDigest(stored)) << schema;
    // It is an experiment, and can be extended.
    const auto longer = withSettings(completed, {"spec.update.maxUpdates=151"});
    ASSERT_TRUE(longer) << longer.error().message;
    EXPECT_EQ(specChanges(completed, *longer).size(), 1u);
    EXPECT_TRUE(checkLiveChanges(completed, *longer, false));
    // Completing is done once and for all.
    v1::Experiment again = completed;
    complete(&again);
    EXPECT_EQ(canonicalBytes(again), canonicalBytes(completed));
  }
}

// The unchanged file of a run from before chat templates asks for none, not for today's default.
TEST(Schema, AFileMeansWhatItMeantForTheBuildOfItsRun) {
  EXPECT_EQ(parsed().spec().model().chat_template(), "auto");
  EXPECT_EQ(parsed({}, 1).spec().model().chat_template(), "none");
  EXPECT_EQ(parsed({"spec.model.chatTemplate=auto"}, 1).spec().model().chat_template(), "auto");
  EXPECT_EQ(parsed({}, 1).spec().attention().protocol(), "A");
  EXPECT_EQ(parsed({}, 1).spec().generation().top_p(), 1.0);
  EXPECT_EQ(parsed({}, 1).spec().evaluation().measures(0), "accuracy");
  // What builds did that measured fidelity and asked nobody how.
  EXPECT_EQ(parsed({}, 10).spec().evaluation().support_tile(), 32u);
  EXPECT_EQ(parsed({}, 10).spec().evaluation().agreement(), "all-layers");
  EXPECT_EQ(parsed({}, 10).spec().evaluation().fidelity_questions(), 64u);
  EXPECT_EQ(parsed({}, 5).spec().evaluation().answers(), "none");
  EXPECT_EQ(parsed().spec().evaluation().answers(), "wrong");
  // Keys and values of a run on a CPU were float32.
  EXPECT_EQ(parsed().spec().model().kv_dtype(), "bfloat16");
  EXPECT_EQ(parsed({}, 10).spec().model().kv_dtype(), "by-device");
  EXPECT_EQ(parsed({"spec.model.kvDtype=float32"}, 10).spec().model().kv_dtype(), "float32");
}

// A method's text leaves out what its defaults say, and runs keep theirs: quest of a run from
// before the key reads as it did, whoever asks again, and the file that is made of the run says so.
TEST(Schema, AMethodMeansWhatItMeantForTheBuildOfItsRun) {
  const auto decode = [](const std::string& text, uint32_t schema,
                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings = more;
    settings.push_back("spec.attention.decode=" + text);
    settings.push_back("spec.evaluation.methods=[dense, " + text + "]");
    return parsed(settings, schema);
  };
  const auto expect = [](const v1::Experiment& experiment, const std::string& defaults,
                         const std::string& method, bool within) {
    const v1::Spec& spec = experiment.spec();
    EXPECT_EQ(spec.attention().method_defaults(), defaults);
    EXPECT_EQ(spec.attention().decode(), method);
    EXPECT_EQ(spec.evaluation().methods(1), method);
    kernels::MethodOptions options;
    ASSERT_FALSE(kernels::parseMethod(spec.attention().decode(), &options,
                                      methodDefaultsOf(spec.attention())));
    EXPECT_EQ(options.newest_within, within);
  };
  expect(decode("quest", 6), "2", "quest", false);
  expect(decode("quest newest=beside", 6), "2", "quest", false);
  expect(decode("quest newest=within", 6), "2", "quest newest=within", true);
  expect(decode("quest", 5), "1", "quest", true);
  expect(decode("quest newest=within", 5), "1", "quest", true);
  expect(decode("quest newest=beside", 5), "1", "quest newest=beside", false);
  expect(decode("quest", 6, {"spec.attention.methodDefaults=1"}), "1", "quest", true);
  v1::Experiment stored = asOfSchema(decode("quest", 5), 5);
  EXPECT_EQ(stored.spec().attention().method_defaults(), "");
  complete(&stored);
  expect(stored, "1", "quest", true);
  const auto longer = withSettings(stored, {"spec.update.maxUpdates=151"});
  ASSERT_TRUE(longer) << longer.error().message;
  expect(*longer, "1", "quest", true);
  EXPECT_EQ(specChanges(stored, *longer).size(), 1u);
  const auto written = parseExperiment(experimentYaml(stored), "x.yaml");  // as `allot fork` does
  ASSERT_TRUE(written) << written.error().message;
  expect(*written, "1", "quest", true);
  // Equal by the run's own defaults.
  const auto twice = withSettings(stored, {"spec.evaluation.methods=[quest, quest newest=within]"});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("the list has this entry already"));
}

// A run draws as it did when it began, whatever its file leaves out and whoever goes on with it.
TEST(Schema, AnOlderRunKeepsItsRandomNumbers) {
  EXPECT_EQ(parsed().spec().streams(), "disjoint");
  for (uint32_t schema = 1; schema < 6; ++schema) {
    v1::Experiment stored = asOfSchema(parsed({}, schema), schema);
    EXPECT_EQ(stored.spec().streams(), "");
    complete(&stored);
    EXPECT_EQ(stored.spec().streams(), "overlapping");
    EXPECT_EQ(stored.spec().repetition(), 0u);
    EXPECT_TRUE(specChanges(stored, parsed({}, schema)).empty());
  }
  for (const char* other : {"spec.streams=overlapping", "spec.repetition=5"}) {
    EXPECT_NE(specDigest(parsed({other})), specDigest(parsed()));
    const Status changed = checkLiveChanges(parsed(), parsed({other}), false, "12 episodes");
    ASSERT_FALSE(changed);
    EXPECT_THAT(changed.error().message, HasSubstr("allot fork"));
  }
}

TEST(Schema, ASweepGetsNoUpdates) {
  v1::Experiment sweep = parsed();
  sweep.mutable_spec()->clear_update();
  complete(&sweep);
  EXPECT_FALSE(sweep.spec().has_update());
  EXPECT_EQ(schemaOf(sweep), kSpecSchema);
  EXPECT_FALSE(asOfSchema(sweep, 1).spec().has_update());
}

TEST(Schema, WhatABuildDidNotKnowMattersWhereItIsNotWhatItDid) {
  EXPECT_TRUE(changesBeyond(5, parsed({}, 5)).empty());
  EXPECT_TRUE(changesBeyond(kSpecSchema, parsed()).empty());
  const auto beyond = changesBeyond(5, parsed({"spec.streams=disjoint"}, 5));
  ASSERT_EQ(beyond.size(), 1u);
  EXPECT_EQ(beyond[0].path, "spec.streams");
  EXPECT_FALSE(beyond[0].live);
  EXPECT_GT(changesBeyond(5, parsed()).size(), 1u);  // today's defaults
}

TEST(Schema, ARunOfANewerBuildIsRefusedWithTheBuildToUse) {
  EXPECT_TRUE(checkSchema(kSpecSchema, "", "run x"));
  const Status refused = checkSchema(kSpecSchema + 1, "allot 7.0 (GNU 13)", "run x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("allot 7.0 (GNU 13)"));
  EXPECT_THAT(refused.error().message, HasSubstr("use that one"));
  EXPECT_THAT(checkSchema(99, "", "run x").error().message, HasSubstr("use that build"));
}

}  // namespace
}  // namespace allot
