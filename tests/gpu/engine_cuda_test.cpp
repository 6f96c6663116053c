// The worker's engine on a GPU.

#include "core/learning/update.h"
#include "tests/gpu/decoder_fixture.h"
#include "tests/results.h"
#include "tests/worker/engine_fixture.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_settings.h"

namespace allot {
namespace {

TEST_F(DecoderCuda, AutoIsTheGpuUnlessSomethingNeedsTheCpu) {
  const auto chosen = [&](const std::vector<std::string>& set) {
    return chooseDevice(experiment(set).spec(), gpu_->config());
  };
  EXPECT_EQ(chosen({}), Device::kCuda);
  EXPECT_EQ(chosen({"spec.model.device=cpu"}), Device::kCpu);
  EXPECT_EQ(chosen({"spec.evaluation.measures=[fidelity,variance]"}), Device::kCuda);
  EXPECT_EQ(chosen({"spec.model.dtype=bfloat16"}), Device::kCuda);
  EXPECT_EQ(chosen({"spec.evaluation.methods=[quest,bernoulli]"}), Device::kCuda);
  EXPECT_EQ(chosen({"spec.evaluation.methods=[s2anta-q4 bits=3]"}), Device::kCpu);
  EXPECT_FALSE(chosen({"spec.model.dtype=bfloat16", "spec.evaluation.methods=[s2anta-q4 bits=3]"}));
}

TEST_F(DecoderCuda, EpisodesAreTheSameAloneAndTogetherAndNameTheGpu) {
  const auto e = experiment({"spec.model.device=cuda", "spec.task.contextTokens=192",
                             "spec.task.trainQuestions=64", "spec.task.heldOutQuestions=8"});
  const auto engine = load(e, 256);
  const auto policy = initialState(e, 8).policy();
  const auto together = valueOf(engine->rollOut(policy, "x", {0, 1, 2, 3, 4}));
  for (const uint64_t ticket : {3, 0, 4}) {
    const auto alone = valueOf(engine->rollOut(policy, "x", {ticket}));
    const v1::EpisodeResult &a = alone.front(), &b = together[ticket];
    EXPECT_EQ(a.device(), gpu_->deviceName());
    EXPECT_EQ(a.reward(), b.reward());
    EXPECT_EQ(a.counts().draws(), a.counts().decode_steps() * 8 * 8);
    EXPECT_EQ(a.counts().unique_rows(), b.counts().unique_rows());
    EXPECT_EQ(scoresOf(a), scoresOf(b));
  }
}

}  // namespace
}  // namespace allot
