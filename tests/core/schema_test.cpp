// What older builds stored: the table of keys says what their absence meant, and stays as it is. No
// key has come since the first schema, so that a made-up table shows how later ones are read.
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "core/spec/spec_rules.h"
#include "core/spec/spec_schema.h"
#include "tests/results.h"

namespace allot {
namespace {

const std::string kGolden = ALLOT_SOURCE_DIR "/tests/golden/keys.txt";

struct Known {
  uint32_t since = 0;
  std::string before;
};

// "12 spec.evaluation.measures [accuracy]"; of the first schema without the third word.
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

// Today's keys, as if some of them had come later: a section, single keys, a list, a key of the
// whole experiment, a text that may be empty.
constexpr uint32_t kNewest = 5;
std::vector<SpecRule> laterRules() {
  const std::map<std::string, Known> later = {
      {"spec.generation.temperature", {2, "0"}},
      {"spec.generation.topP", {2, "1"}},
      {"spec.generation.topK", {2, "0"}},
      {"spec.generation.repetitionPenalty", {2, "1"}},
      {"spec.model.chatTemplate", {3, "none"}},
      {"spec.task.path", {3, "\"\""}},
      {"spec.repetition", {4, "0"}},
      {"spec.policy.granularity", {4, "layer"}},
      {"spec.model.kvDtype", {4, "float32"}},
      {"spec.update.learner", {5, "reinforce"}},
      {"spec.evaluation.prefills", {5, "[dense]"}},
      {"spec.evaluation.answers", {5, "none"}},
  };
  std::vector<SpecRule> rules = specRules();
  for (const auto& [path, known] : later) {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const SpecRule& r) { return r.path == path; });
    if (rule == rules.end()) {
      ADD_FAILURE() << path << " is no key";
      continue;
    }
    rule->since = known.since;
    rule->before = known.before;
  }
  return rules;
}

const std::string kYaml =
    "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
    "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n  update: {}\n";

// The file of a run that a build of that schema created.
v1::Experiment parsed(const std::vector<std::string>& settings = {}, uint32_t schema = kNewest) {
  return valueOf(parseStoredExperiment(kYaml, "tiny.yaml", settings, schema, laterRules()));
}

// Builds have stored experiments by this list: what is in it cannot change.
TEST(Schema, EveryKeySaysWhatItsAbsenceMeant) {
  std::map<std::string, Known> golden = goldenKeys();
  for (const SpecRule& rule : specRules()) {
    const auto known = golden.find(rule.path);
    if (known == golden.end()) {
      ADD_FAILURE()
          << rule.path << " is a new key: add the line `1 " << rule.path << "` to " << kGolden
          << ". From the tag v0.1.0 on runs and exports exist that do not have it: set kSpecSchema "
          << "in core/spec/spec_schema.h to " << kNextSchema << ", say in kAdded of "
          << "core/spec/spec_rules.cpp since which schema there is the key and what builds before "
             "it "
          << "did, and add the line `" << kNextSchema << " " << rule.path << " THAT`";
      continue;
    }
    EXPECT_EQ(rule.since, known->second.since) << rule.path;
    EXPECT_EQ(rule.before, known->second.before) << rule.path;
    EXPECT_LE(rule.since, kSpecSchema) << rule.path;
    EXPECT_TRUE(rule.since == 1 || rule.since > kLastDevelopmentSchema) << rule.path;
    golden.erase(known);
  }
  for (const auto& [path, known] : golden) {
    ADD_FAILURE() << path << " is gone: experiments that hold it could not be read any more";
  }
}

// Returns the keys whose value before cannot be told from an absent key.
std::vector<std::string> unclear(const std::vector<SpecRule>& rules) {
  std::vector<std::string> paths;
  for (const SpecRule& rule : rules) {
    if (rule.since == 1) {
      EXPECT_EQ(rule.before, "") << rule.path;
      continue;
    }
    v1::Experiment without = asOfSchema(parsed(), rule.since - 1, rules);
    v1::Experiment with = without;
    EXPECT_TRUE(readRule(rule, rule.before, fieldOf(rule, *with.mutable_spec()))) << rule.path;
    fieldOf(rule, *without.mutable_spec());  // makes the section
    if (canonicalBytes(with) == canonicalBytes(without)) continue;
    const SpecField at = fieldOf(rule, *with.mutable_spec());
    const char* const empty = at.field->is_repeated()                            ? "[]"
                              : at.field->cpp_type() == at.field->CPPTYPE_STRING ? "\"\""
                                                                                 : "0";
    if (readRule(rule, empty, at)) paths.push_back(rule.path);
  }
  return paths;
}

// Such a key needs a field that is `optional`.
TEST(Schema, AKeyWhoseAbsenceMeansSomethingIsNeverEmptyOrZero) {
  EXPECT_THAT(unclear(specRules()), IsEmpty());
  std::vector<SpecRule> rules = laterRules();
  EXPECT_THAT(unclear(rules), IsEmpty());
  for (SpecRule& rule : rules) {
    if (rule.path != "spec.evaluation.everyUpdates") continue;
    rule.since = 5;
    rule.before = "25";  // and 0 is a value
  }
  EXPECT_THAT(unclear(rules), ElementsAre("spec.evaluation.everyUpdates"));
}

TEST(Schema, WhatAnyBuildStoredIsCompletedAndKeepsItsDigest) {
  const auto rules = laterRules();
  for (uint32_t schema = 1; schema <= kNewest; ++schema) {
    // What a build of that schema made of the file.
    const v1::Experiment stored = asOfSchema(parsed({}, schema), schema, rules);
    EXPECT_EQ(stored.spec().has_generation(), schema >= 2);
    EXPECT_EQ(stored.spec().model().kv_dtype().empty(), schema < 4);
    v1::Experiment completed = stored;
    complete(&completed, rules);
    EXPECT_EQ(canonicalBytes(completed), canonicalBytes(parsed({}, schema))) << schema;
    EXPECT_EQ(specDigest(asOfSchema(completed, schema, rules)), specDigest(stored)) << schema;
    // It is an experiment, and can be extended.
    const auto longer = valueOf(withSettings(completed, {"spec.update.maxUpdates=151"}));
    EXPECT_EQ(specChanges(completed, longer).size(), 1u);
    EXPECT_TRUE(checkLiveChanges(completed, longer, false));
    // Completing is done once and for all.
    v1::Experiment again = completed;
    complete(&again, rules);
    EXPECT_EQ(canonicalBytes(again), canonicalBytes(completed));
  }
}

// The unchanged file of a run from before a key asks for what builds did then, not for today's
// default.
TEST(Schema, AFileMeansWhatItMeantForTheBuildOfItsRun) {
  EXPECT_EQ(parsed().spec().model().chat_template(), "auto");
  EXPECT_EQ(parsed({}, 2).spec().model().chat_template(), "none");
  EXPECT_EQ(parsed({"spec.model.chatTemplate=auto"}, 2).spec().model().chat_template(), "auto");
  EXPECT_EQ(parsed({}, 1).spec().generation().top_p(), 1.0);
  EXPECT_EQ(parsed({}, 4).spec().update().learner(), "reinforce");
  EXPECT_EQ(parsed().spec().update().learner(), "additive");
  EXPECT_EQ(parsed({}, 4).spec().evaluation().answers(), "none");
  EXPECT_EQ(parsed().spec().evaluation().answers(), "wrong");
  EXPECT_EQ(parsed({}, 3).spec().model().kv_dtype(), "float32");
  EXPECT_EQ(parsed({"spec.model.kvDtype=bfloat16"}, 3).spec().model().kv_dtype(), "bfloat16");
}

TEST(Schema, ASweepGetsNoUpdates) {
  v1::Experiment sweep = parsed();
  sweep.mutable_spec()->clear_update();
  complete(&sweep, laterRules());
  EXPECT_FALSE(sweep.spec().has_update());
  EXPECT_FALSE(asOfSchema(sweep, 1, laterRules()).spec().has_update());
}

TEST(Schema, WhatABuildDidNotKnowMattersWhereItIsNotWhatItDid) {
  const auto rules = laterRules();
  EXPECT_TRUE(changesBeyond(3, parsed({}, 3), rules).empty());
  EXPECT_TRUE(changesBeyond(kNewest, parsed(), rules).empty());
  const auto beyond = changesBeyond(3, parsed({"spec.repetition=5"}, 3), rules);
  ASSERT_EQ(beyond.size(), 1u);
  EXPECT_EQ(beyond[0].path, "spec.repetition");
  EXPECT_FALSE(beyond[0].live);
  EXPECT_GT(changesBeyond(3, parsed(), rules).size(), 1u);  // today's defaults
}

// A worker of the build that created the run would work without such a key.
TEST(Schema, AFileThatTakesUpANewKeyIsOfThisBuild) {
  const auto fileOf = [](const std::vector<std::string>& settings) {
    return valueOf(parseFileOfRun(kYaml, "tiny.yaml", settings, 3, laterRules()));
  };
  const FileOfRun same = fileOf({"spec.policy.totalBudget=16"});  // what both builds know
  EXPECT_EQ(same.schema, 3u);
  EXPECT_EQ(same.experiment.spec().model().kv_dtype(), "float32");
  const FileOfRun now = fileOf({"spec.repetition=5"});
  EXPECT_EQ(now.schema, kNewest);
  EXPECT_EQ(now.experiment.spec().repetition(), 5u);
  // What the file leaves out means what it means to this build.
  EXPECT_EQ(now.experiment.spec().model().kv_dtype(), "bfloat16");
  EXPECT_EQ(now.experiment.spec().update().learner(), "additive");
}

TEST(Schema, ARunOfANewerBuildIsRefusedWithTheBuildToUse) {
  EXPECT_TRUE(checkSchema(kSpecSchema, "", "run x"));
  EXPECT_THAT(checkSchema(kNextSchema, "allot 7.0 (GNU 13)", "run x"),
              isError(ErrorCode::kUsage, AllOf(HasSubstr("newer build, allot 7.0 (GNU 13)"),
                                               HasSubstr("use that one"))));
  EXPECT_THAT(checkSchema(99, "", "run x").error().message, HasSubstr("use that build"));
}

TEST(Schema, ARunOfADevelopmentBuildIsRefusedWithTheMend) {
  for (const uint32_t schema : {0u, 2u, 5u, kLastDevelopmentSchema}) {
    EXPECT_THAT(
        checkSchema(schema, "", "run x"),
        isError(ErrorCode::kUsage,
                "run x was created by a development build before 0.1.0, which this build does not "
                "read: use that build, or make the run again from its experiment file with this "
                "one"))
        << schema;
  }
  EXPECT_THAT(checkSchema(11, "allot 0.0", "run x").error().message,
              HasSubstr("before 0.1.0, allot 0.0, which"));
  // Of today's schema, with a key that was deleted before the release.
  const auto today = valueOf(parseExperiment(kYaml, "tiny.yaml"));
  EXPECT_TRUE(checkSchema(kSpecSchema, "", "run x", today));
  v1::Experiment then = today;
  then.mutable_spec()
      ->mutable_policy()
      ->GetReflection()
      ->MutableUnknownFields(then.mutable_spec()->mutable_policy())
      ->AddLengthDelimited(3, "uniform");
  EXPECT_THAT(checkSchema(kSpecSchema, "", "run x", then),
              isError(HasSubstr("a development build before 0.1.0")));
}

}  // namespace
}  // namespace allot
