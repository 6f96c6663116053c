// SampleAttention's grid by length class, and what is chosen of it.
#include "cli/sample_calibration.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

namespace allot {
namespace {

using testing::ElementsAre;

TEST(SampleCalibration, SelectionsOfAPromptBecomeTheNearestParameter) {
  EXPECT_EQ(selectionTokens(1024, 1), 1024u);
  EXPECT_EQ(selectionTokens(1024, 4), 256u);
  EXPECT_EQ(selectionTokens(1024, 6), 128u);  // of 170: 128 is nearer by ratio than 256
  EXPECT_EQ(selectionTokens(1100, 6), 256u);
  EXPECT_EQ(selectionTokens(256, 6), 64u);       // no smaller one
  EXPECT_EQ(selectionTokens(131072, 6), 4096u);  // nor a larger one
  EXPECT_EQ(selectionTokens(100, 1), 128u);
}

TEST(SampleCalibration, TheGridIsThePapersAndNamesEachSettingOnce) {
  SampleCalibrationOptions options;
  const auto all = settingsOf(options, 1024);
  EXPECT_EQ(all.size(), 144u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 144u);
  EXPECT_EQ(all.front(), "sample-attention alphaColumn=0.8 alphaSlash=0.8 chunk=1024");
  // At 128k tokens each selection is for 4096 positions, whatever chunk_n says.
  EXPECT_EQ(settingsOf(options, 131072).size(), 36u);
  options.columns = {0.95};
  options.slashes = {0.95, 0.5};
  options.chunks = {1};
  options.block = 16;
  EXPECT_THAT(settingsOf(options, 4096),
              ElementsAre("sample-attention block=16", "sample-attention alphaSlash=0.5 block=16"));
}

TEST(SampleCalibration, TheFastestHasNineTenthsOfTheBestAccuracy) {
  const MeasuredSetting best{"a", 0.8, 0, 1, 0.7}, wasteful{"b", 0.8, 0, 1, 0.9},
      fast{"c", 0.72, 0, 1, 0.3}, faster{"d", 0.71, 0, 1, 0.1}, worse{"e", 0.75, 0, 1, 0.4};
  std::vector<MeasuredSetting> settings = {wasteful, faster, worse, fast, best};
  for (int turn = 0; turn < 5; ++turn) {
    const ChosenSettings chosen = chooseSettings(settings);
    EXPECT_EQ(chosen.accurate, best);
    EXPECT_EQ(chosen.fast, fast);
    std::rotate(settings.begin(), settings.begin() + 1, settings.end());
  }
  // Of equal blocks the more accurate.
  const MeasuredSetting good{"f", 0.79, 0, 1, 0.3};
  settings.push_back(good);
  EXPECT_EQ(chooseSettings(settings).fast, good);
  EXPECT_EQ(chooseSettings({worse}).fast, worse);
}

}  // namespace
}  // namespace allot
