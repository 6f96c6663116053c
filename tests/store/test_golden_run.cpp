// A run of 28 layers that is committed as files. ctest verifies it a second time with the variants
// of libm that a processor without FMA would take.
#include <gmock/gmock.h>

#include <cmath>

#include "core/learning/exact_math.h"
#include "core/learning/policy_gradient.h"
#include "tests/store/archive_fixture.h"

namespace allot::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kGolden = ALLOT_SOURCE_DIR "/tests/golden/verify/";
const char* const kFiles[] = {"export.json", "history.jsonl", "evaluations.jsonl"};

class GoldenRun : public Archive {
 protected:
  // `name` in out_, to be changed.
  void copy(const std::string& name) {
    fs::create_directories(out_);
    for (const char* file : kFiles) write(out_ + "/" + file, readFile(kGolden + name + "/" + file));
  }
};

// How the newest one is made:
//   test_archive --gtest_also_run_disabled_tests --gtest_filter=GoldenRun.DISABLED_Write
TEST_F(GoldenRun, DISABLED_Write) {
  run_ = std::make_unique<SmallRun>(store_.get(), false, 28);
  run_->update(8);
  ASSERT_TRUE(exportTo(out_));
  fs::create_directories(kGolden + kArithmetic);
  for (const char* file : kFiles) {
    write(kGolden + kArithmetic + "/" + file, readFile(out_ + "/" + file));
  }
}

TEST_F(GoldenRun, OfTodaysArithmeticIsEqualBitForBitOnEveryProcessor) {
  const auto verified = verify(kGolden + kArithmetic);
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->updates, 8u);
  EXPECT_EQ(verified->head.image.spec.arithmetic, kArithmetic);
  EXPECT_FALSE(verified->rounding.differs());
  EXPECT_EQ(roundingSentence(*verified), "");
}

// A changed record is found in the first update and in the last.
TEST_F(GoldenRun, ARecordMayNotDiffer) {
  copy(kArithmetic);
  for (const uint64_t version : {1, 8}) {
    const std::string update = "update " + std::to_string(version) + ": ";
    EXPECT_THAT(afterChanging(version,
                              [](auto* record) {
                                auto* logits = record->mutable_policy()->mutable_logits();
                                logits->Set(2, logits->Get(2) + 1e-5);
                                record->set_policy_sha256(policyDigest(record->policy()));
                              }),
                HasSubstr(update + "it computes to policy"));
    const auto at = [&](const std::function<void(v1::IterationRecord*)>& change) {
      return afterChanging(version, change);
    };
    const std::string differs = update + "its record differs";
    EXPECT_THAT(at([](auto* r) { r->set_step_kl_nats(r->step_kl_nats() + 1e-9); }),
                HasSubstr(differs));
    EXPECT_THAT(at([](auto* r) { r->set_gradient_norm(r->gradient_norm() + 1e-9); }),
                HasSubstr(differs));
    EXPECT_THAT(at([](auto* r) { r->set_entropy_nats(NAN); }), HasSubstr(differs));
    EXPECT_THAT(at([](auto* r) { r->mutable_weights()->Set(0, r->weights(0) + 1e-9); }),
                HasSubstr(differs));
    EXPECT_THAT(at([](auto* r) { r->add_weights(1); }), HasSubstr(differs));
    EXPECT_THAT(at([](auto* r) { r->set_mean_reward(std::nextafter(r->mean_reward(), 1)); }),
                HasSubstr(differs));
    EXPECT_THAT(
        at([](auto* r) { r->mutable_baselines()->Set(0, std::nextafter(r->baselines(0), 1)); }),
        HasSubstr(differs));
  }
}

}  // namespace
}  // namespace allot::test
