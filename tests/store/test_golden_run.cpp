// A run of 28 layers that is committed as files: it holds today's arithmetic to its bits. ctest
// verifies it a second time with the variants of libm that a processor without FMA would take.
#include "core/learning/exact_math.h"
#include "tests/store/archive_fixture.h"

namespace allot::test {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = ALLOT_SOURCE_DIR "/tests/golden/verify/";
const char* const kFiles[] = {"export.json", "history.jsonl", "evaluations.jsonl"};

class GoldenRun : public Archive {};

// How the newest one is made:
//   test_archive --gtest_also_run_disabled_tests --gtest_filter=GoldenRun.DISABLED_Write
TEST_F(GoldenRun, DISABLED_Write) {
  run_ = std::make_unique<SmallRun>(store_.get(), false, 28);
  run_->update(7);
  run_->planEvaluation();
  run_->evaluate(8);
  run_->update();
  ASSERT_TRUE(exportTo(out_));
  fs::create_directories(kGolden + kArithmetic);
  for (const char* file : kFiles) {
    write(kGolden + kArithmetic + "/" + file, readFile(out_ + "/" + file));
  }
}

TEST_F(GoldenRun, OfTodaysArithmeticIsEqualBitForBitOnEveryProcessor) {
  const auto verified = valueOf(verify(kGolden + kArithmetic));
  EXPECT_EQ(verified.updates, 8u);
  EXPECT_EQ(verified.head.image.spec.arithmetic, kArithmetic);
}

}  // namespace
}  // namespace allot::test
