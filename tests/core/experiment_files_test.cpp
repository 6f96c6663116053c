// What an experiment names is found from anywhere, and a profile takes the place of its name.
#include "core/files/files.h"

#include <filesystem>

#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

class NamedFiles : public testing::Test {
 protected:
  static v1::Experiment naming(const std::string& path) {
    v1::Experiment experiment;
    experiment.mutable_spec()->mutable_attention()->set_prefill_profile(path);
    return experiment;
  }
  static std::string profileIn(const v1::Experiment& experiment) {
    return experiment.spec().attention().prefill_profile();
  }

  const TempFolder folder_;
  const std::string text_ = profileText({std::string(64, '0'), {{0.008, 0.004}, {0.002, 0}}});
};

TEST_F(NamedFiles, AProfileIsFoundBesideTheExperimentOrAbove) {
  std::filesystem::create_directories(folder_.path() + "/a/b");
  const std::string file = folder_.path() + "/a/b/experiment.yaml";
  folder_.write("a/b/beside.json", text_);
  folder_.write("above.json", text_);
  for (const std::string& name :
       {std::string("beside.json"), std::string("above.json"), folder_.path() + "/above.json"}) {
    v1::Experiment experiment = naming(name);
    ASSERT_THAT(embedProfiles(&experiment, file), succeeds());
    EXPECT_EQ(profileIn(experiment), text_);
    // Once it is there, no file is asked any more.
    ASSERT_TRUE(embedProfiles(&experiment, "/nowhere/experiment.yaml"));
    EXPECT_EQ(profileIn(experiment), text_);
  }
  v1::Experiment none = naming("");
  ASSERT_TRUE(embedProfiles(&none, file));
  EXPECT_EQ(profileIn(none), "");
}

TEST_F(NamedFiles, AProfileOfKeysAndValuesIsFoundToo) {
  const std::string text = kvProfileText({std::string(64, '0'), {{0.5, 1}}, {{2, 4}}});
  const std::string file = folder_.path() + "/experiment.yaml";
  folder_.write("kv.json", text);
  folder_.write("sale.json", text_);
  v1::Experiment experiment = naming("sale.json");
  std::string& named = *experiment.mutable_spec()->mutable_model()->mutable_kv_profile();
  named = "sale.json";
  EXPECT_THAT(embedProfiles(&experiment, file), isError(HasSubstr("kind is \"sale-profile\"")));
  named = "missing.json";
  EXPECT_THAT(embedProfiles(&experiment, file),
              isError(HasSubstr("spec.model.kvProfile: there is no missing.json")));
  named = "kv.json";
  ASSERT_THAT(embedProfiles(&experiment, file), succeeds());
  EXPECT_EQ(named, text);
  EXPECT_EQ(profileIn(experiment), text_);
}

TEST_F(NamedFiles, WhatIsNoProfileIsRefusedByName) {
  const auto refusalOf = [&](const std::string& name) {
    v1::Experiment experiment = naming(name);
    const Status brought = embedProfiles(&experiment, folder_.path() + "/experiment.yaml");
    EXPECT_FALSE(brought) << name;
    if (brought) return std::string();
    EXPECT_EQ(brought.error().exitCode(), 64);
    EXPECT_EQ(profileIn(experiment), name);
    return brought.error().message;
  };
  EXPECT_THAT(refusalOf("missing.json"),
              HasSubstr("spec.attention.prefillProfile: there is no missing.json"));
  const std::string other = folder_.write("other.json", "{\"kind\": \"x\"}");
  EXPECT_THAT(refusalOf("other.json"), HasSubstr(other + ": kind is \"x\""));
  folder_.write("large.json", std::string(kMostProfileBytes + 1, ' '));
  EXPECT_THAT(refusalOf("large.json"), HasSubstr("spec.attention.prefillProfile: "));
  std::filesystem::create_directories(folder_.path() + "/folder");
  EXPECT_THAT(refusalOf("folder"), HasSubstr("spec.attention.prefillProfile: "));
}

}  // namespace
}  // namespace allot
