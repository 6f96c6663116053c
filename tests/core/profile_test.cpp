// Profiles of a prefill: what is read, what is refused, and how an experiment carries one.
#include "core/spec/prefill_profile.h"

#include "core/spec/spec.h"
#include "core/spec/spec_change.h"
#include "tests/results.h"

namespace allot {
namespace {

const std::string kDigest(64, 'a');

PrefillProfile profile(double first = 0.008) {
  return {kDigest, {{first, 0.004}, {0.000125, 0}, {0.5, 0.25}}};
}

std::string withProfile(const std::string& value, const std::string& prefill = "sale tau=profile") {
  return "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: tiny}\nspec:\n"
         "  model: {path: m}\n  task: {tasks: [niah]}\n  policy: {totalBudget: 8}\n"
         "  evaluation: {prefills: [dense, sale, " +
         prefill + "]}\n  attention: {prefillProfile: '" + value + "'}\n";
}

std::string refusalOf(const std::string& json) {
  const auto read = parseProfile(json, "p.json");
  EXPECT_FALSE(read) << json;
  if (read) return "";
  EXPECT_EQ(read.error().exitCode(), 64);
  return read.error().message;
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = profileText(profile());
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Profile, ItsLineReadsBackAndIsOneForEqualProfiles) {
  const auto read = valueOf(parseProfile(profileText(profile()), "p.json"));
  EXPECT_EQ(read, profile());
  EXPECT_EQ(profileText(read), profileText(profile()));
  // A file has more, in whatever order and layout.
  const auto file =
      valueOf(parseProfile("{\n \"tau\": [[8e-3, 4.0e-3],\n [0.000125, -0.0], [0.5, 0.25]],\n"
                           " \"theta\": 0.4, \"error\": [[1, 2]], \"keyBlock\": 32,\n"
                           " \"kind\": \"sale-profile\", \"queryBlock\": 64,\n"
                           " \"weightsSha256\": \"" +
                               kDigest + "\"}\n",
                           "p.json"));
  EXPECT_EQ(profileText(file), profileText(profile()));
}

TEST(Profile, WhatIsNoneIsRefusedByOneSentence) {
  EXPECT_THAT(refusalOf("[]"), EndsWith("p.json: is no profile of sale; make one with `allot "
                                        "calibrate sale`"));
  EXPECT_THAT(refusalOf("{"), StartsWith("p.json:"));
  EXPECT_THAT(refusalOf("{}"), HasSubstr("it has no kind"));
  EXPECT_THAT(refusalOf(changed("sale-profile", "other")), HasSubstr("kind is \"other\""));
  EXPECT_THAT(refusalOf(changed("\"queryBlock\": 64", "\"queryBlock\": 128")),
              HasSubstr("queryBlock is \"128\", and this build reads profiles with \"64\""));
  EXPECT_THAT(refusalOf(changed("\"keyBlock\": 32", "\"keyBlock\": [32]")),
              HasSubstr("keyBlock is no text or number"));
  EXPECT_THAT(refusalOf(changed(kDigest, "aa")), HasSubstr("no SHA-256"));
  for (const char* bad : {"1", "-0.1", "nan", "inf", "x", "[0.1]", "\"\"", "1e999"}) {
    EXPECT_THAT(refusalOf(changed("0.004", bad)), HasSubstr("p.json: tau[0][1] = ")) << bad;
  }
  EXPECT_THAT(refusalOf(changed("[0.008,0.004]", "[0.008]")), HasSubstr("tau[1] is not a list"));
  EXPECT_THAT(refusalOf(changed("[0.008,0.004]", "[]")), HasSubstr("tau[0] is not a list"));
  EXPECT_THAT(refusalOf(changed("[[0.008,0.004],[0.000125,0],[0.5,0.25]]", "[]")),
              HasSubstr("tau is empty"));
  PrefillProfile large = profile();
  large.tau.assign(1024, std::vector<double>(33, 0));
  EXPECT_THAT(refusalOf(profileText(large)), HasSubstr("more than 32768 heads"));
  large.tau.assign(512, std::vector<double>(60, 1.0 / 3));
  EXPECT_THAT(refusalOf(profileText(large)), HasSubstr("write it with fewer digits"));
  EXPECT_THAT(refusalOf(std::string(kMostProfileBytes + 1, ' ')), HasSubstr("has more than"));
}

TEST(Profile, ItIsForOneModel) {
  EXPECT_TRUE(checkProfile(profile(), 3, 2));
  EXPECT_TRUE(checkProfile(profile(), kDigest));
  EXPECT_TRUE(checkProfile(PrefillProfile(), 3, 2));
  EXPECT_TRUE(checkProfile(PrefillProfile(), "b"));
  const Status layers = checkProfile(profile(), 2, 2), heads = checkProfile(profile(), 3, 3);
  ASSERT_FALSE(layers || heads);
  EXPECT_EQ(layers.error().message,
            "spec.attention.prefillProfile: the profile is for 3 layers of 2 heads, and the model "
            "has 2 layers of 2 heads: make its own with `allot calibrate sale`");
  EXPECT_THAT(heads.error().message, HasSubstr("3 layers of 3 heads"));
  EXPECT_THAT(
      checkProfile(profile(), std::string(64, 'b')),
      isError("spec.attention.prefillProfile: the profile is of another model (aaaaaaaaaaaa) than "
              "this one (bbbbbbbbbbbb): make its own with `allot calibrate sale`"));
}

TEST(Profile, AnExperimentCarriesIt) {
  const auto experiment = valueOf(parseExperiment(withProfile(profileText(profile())), "x.yaml"));
  const v1::Spec& spec = experiment.spec();
  EXPECT_EQ(spec.evaluation().prefills(2), "sale tau=profile");
  EXPECT_EQ(profileUser(spec), "spec.evaluation.prefills[2]");
  EXPECT_EQ(valueOf(profileOf(spec)), profile());
  // As written another way it is the same experiment; with another threshold it is another.
  std::string loose = profileText(profile());
  loose.insert(1, "   ").replace(loose.find("0.008"), 5, "8e-3");
  const auto same = valueOf(parseExperiment(withProfile(loose), "x.yaml"));
  EXPECT_EQ(specDigest(same), specDigest(experiment));
  const auto other = valueOf(parseExperiment(withProfile(profileText(profile(0.004))), "x.yaml"));
  const auto changes = specChanges(experiment, other);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "spec.attention.prefillProfile");
  EXPECT_FALSE(changes[0].live);
  // `allot set`, forks and exports write the experiment and read it again.
  const auto again = valueOf(withSettings(experiment, {"spec.evaluation.everyUpdates=5"}));
  EXPECT_EQ(*profileOf(again.spec()), profile());
}

TEST(Profile, WhoWantsNoneAndWhoHasNone) {
  EXPECT_THAT(
      parseExperiment(withProfile(""), "x.yaml"),
      isError(
          "x.yaml:8: spec.evaluation.prefills[2]: tau=profile needs spec.attention.prefillProfile, "
          "which names no profile; make one with `allot calibrate sale`"));
  EXPECT_THAT(
      parseExperiment(withProfile("p.json", "skip-softmax"), "x.yaml"),
      isError("x.yaml:9: spec.attention.prefillProfile: has no effect: no prompt is read by sale "
              "tau=profile; name that in spec.attention.prefill or spec.evaluation.prefills, or "
              "remove the key"));
  // A run that was stored so goes on.
  EXPECT_TRUE(parseStoredExperiment(withProfile("p.json", "skip-softmax"), "x.yaml"));
  // The name of a file stays one until somebody reads it; no worker takes it for a profile.
  const auto named = valueOf(parseExperiment(withProfile("p.json"), "x.yaml"));
  EXPECT_THAT(profileOf(named.spec()), isError(HasSubstr("p.json was not read")));
  EXPECT_THAT(parseExperiment(withProfile("{}"), "x.yaml"),
              isError(StartsWith("x.yaml:9: spec.attention.prefillProfile: ")));
  const auto decode = parseExperiment(withProfile(profileText(profile())), "x.yaml",
                                      {"spec.attention.decode=sale tau=profile"});
  EXPECT_FALSE(decode);
}

}  // namespace
}  // namespace allot
