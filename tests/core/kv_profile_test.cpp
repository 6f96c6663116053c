// Profiles of eight-bit keys and values: what is read, what is refused, and how an experiment
// carries one. What all profiles share is in profile_test.cpp.
#include "core/spec/kv_profile.h"

#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/results.h"

namespace allot {
namespace {

const std::string kDigest(64, 'a');

KvProfile kvProfile(double first = 0.25) {
  return {kDigest, {{first, 1}, {0.5, 2}, {0.0625, 4}}, {{1, 1}, {2, 0.125}, {1, 8}}};
}

std::string withProfile(const std::string& value, const std::string& dtype = "fp8") {
  return "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
         "  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n"
         "  model: {path: m, kvDtype: " +
         dtype + ", kvProfile: '" + value + "'}\n";
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kvProfileText(kvProfile());
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(KvProfile, ItsLineReadsBackAndWhatIsNoneIsRefused) {
  EXPECT_EQ(valueOf(parseKvProfile(kvProfileText(kvProfile()), "p.json")), kvProfile());
  const auto refused = [](const std::string& json, const std::string& why) {
    EXPECT_THAT(parseKvProfile(json, "p.json"), isError(HasSubstr(why))) << json;
  };
  refused("{}", "p.json: is no profile of kv: it has no kind; make one with `allot calibrate kv`");
  refused(changed("kv-profile", "sale-profile"), "kind is \"sale-profile\"");
  for (const char* bad : {"0", "-1", "nan", "inf", "1e39", "1e-40", "x"}) {
    refused(changed("0.0625", bad),
            "p.json: keyScales[2][0] = " + std::string(bad) + " is not a scale: a float above 0");
  }
  refused(changed("[1,1],[2,0.125],", "[1,1],"),
          "keyScales and valueScales differ in their layers");
  refused(changed("[[1,1],[2,0.125],[1,8]]", "[[1],[2],[1]]"), "differ in their layers or heads");
}

TEST(KvProfile, ItIsForOneModel) {
  EXPECT_TRUE(checkKvProfile(kvProfile(), 3, 2));
  EXPECT_TRUE(checkKvProfile({}, 5, 5));
  EXPECT_THAT(checkKvProfile(kvProfile(), 3, 4),
              isError("spec.model.kvProfile: the profile is for 3 layers of 2 KV heads, and the "
                      "model has 3 layers of 4 KV heads: make its own with `allot calibrate kv`"));
  EXPECT_TRUE(checkProfileModel(kKvProfile, kDigest, kDigest));
  EXPECT_TRUE(checkProfileModel(kKvProfile, "", kDigest));
  EXPECT_THAT(checkProfileModel(kKvProfile, kDigest, std::string(64, 'b')),
              isError("spec.model.kvProfile: the profile is of another model (aaaaaaaaaaaa) than "
                      "this one (bbbbbbbbbbbb): make its own with `allot calibrate kv`"));
}

TEST(KvProfile, AnExperimentCarriesIt) {
  const auto experiment =
      valueOf(parseExperiment(withProfile(kvProfileText(kvProfile())), "x.yaml"));
  EXPECT_EQ(valueOf(kvProfileOf(experiment.spec())), kvProfile());
  // As written another way it is the same experiment; with another scale it is another.
  const auto same = valueOf(parseExperiment(withProfile(changed("0.25", "2.5e-1")), "x.yaml"));
  EXPECT_EQ(specDigest(same), specDigest(experiment));
  const auto other =
      valueOf(parseExperiment(withProfile(kvProfileText(kvProfile(0.125))), "x.yaml"));
  const auto changes = specChanges(experiment, other);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "spec.model.kvProfile");
  EXPECT_FALSE(changes[0].live);
  const auto again = valueOf(withSettings(experiment, {"spec.evaluation.everyUpdates=5"}));
  EXPECT_EQ(valueOf(kvProfileOf(again.spec())), kvProfile());
  // The name of a file stays one until somebody reads it; no worker takes it for a profile.
  const auto named = valueOf(parseExperiment(withProfile("p.json"), "x.yaml"));
  EXPECT_THAT(kvProfileOf(named.spec()), isError(HasSubstr("p.json was not read")));
  EXPECT_THAT(parseExperiment(withProfile("{}"), "x.yaml"),
              isError(StartsWith("x.yaml:7: spec.model.kvProfile: ")));
  EXPECT_EQ(valueOf(kvProfileOf({})), KvProfile());
}

TEST(KvProfile, WithoutEightBitsItHasNoEffectAndFormatsAreNamed) {
  EXPECT_THAT(parseExperiment(withProfile("p.json", "bfloat16"), "x.yaml"),
              isError("x.yaml:7: spec.model.kvProfile: has no effect: keys and values are not kept "
                      "in 8 bits; set spec.model.kvDtype: fp8, or remove the key"));
  for (const char* format : {"fp4", "FP8", "e4m3", "bf16"}) {
    EXPECT_THAT(parseExperiment(withProfile("", format), "x.yaml"),
                isError(AllOf(StartsWith("x.yaml:7: spec.model.kvDtype: "), HasSubstr(format),
                              HasSubstr("bfloat16, float32, fp8"))));
  }
}

}  // namespace
}  // namespace allot
