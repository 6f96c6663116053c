// What `allot wait` waits for.
#include "cli/wait.h"
#include "tests/results.h"

namespace allot {
namespace {

using Word = WaitOutcome::Word;

class Wait : public testing::Test {
 protected:
  Wait() {
    status_.kind = RunAccess::Kind::kRemote;
    status_.lease.held = true;
    status_.aggregator.emplace();
    status_.aggregator->set_phase("running");
    status_.head.image.state.emplace();
    status_.head.image.state->mutable_policy()->set_version(5);
    control().experiment.mutable_spec()->mutable_stop()->set_goal(0.5);
  }
  Control& control() { return status_.head.image.control; }
  Word word(const std::string& wanted, std::optional<double> accuracy = {}) const {
    const auto outcome = outcomeOf(*parseWaitFor(wanted), status_, accuracy);
    EXPECT_TRUE(outcome);
    return outcome ? outcome->word : Word::kTimeout;
  }
  RunStatus status_;
};

TEST_F(Wait, IsOverOnceItIsThere) {
  EXPECT_EQ(word("finished"), Word::kNotYet);
  EXPECT_EQ(word("update=6"), Word::kNotYet);
  EXPECT_EQ(word("update=5"), Word::kReached);
  EXPECT_EQ(word("state=running"), Word::kReached);
  EXPECT_EQ(word("state=evaluating"), Word::kNotYet);
  EXPECT_EQ(word("goal"), Word::kNotYet);
  EXPECT_EQ(word("goal", 0.49), Word::kNotYet);
  EXPECT_EQ(word("goal", 0.5), Word::kReached);
  control().desired = Desired::kPaused;
  EXPECT_EQ(word("finished"), Word::kNotYet);  // somebody may let it go on
  EXPECT_EQ(word("state=paused"), Word::kReached);
  control().desired = Desired::kFinished;
  EXPECT_EQ(word("finished"), Word::kReached);
}

TEST_F(Wait, IsOverOnceItCannotCome) {
  control().desired = Desired::kFinished;
  EXPECT_EQ(word("update=6"), Word::kNever);
  EXPECT_EQ(word("goal", 0.4), Word::kNever);
  EXPECT_EQ(word("state=running"), Word::kNever);
  control().desired = Desired::kStopped;
  EXPECT_EQ(word("finished"), Word::kNever);
  control().desired = Desired::kRunning;
  status_.kind = RunAccess::Kind::kEnded;
  status_.resume_command = "allot run --resume --dir x";
  const auto outcome = outcomeOf(*parseWaitFor("finished"), status_, {});
  EXPECT_EQ(outcome->word, Word::kNever);
  EXPECT_THAT(outcome->why, HasSubstr("allot run --resume --dir x"));
  EXPECT_EQ(exitCodeOf(Word::kReached), 0);
  EXPECT_EQ(exitCodeOf(Word::kNever), 1);
  EXPECT_EQ(exitCodeOf(Word::kTimeout), 75);
}

TEST_F(Wait, RefusesWhatIsNoGoal) {
  control().experiment.mutable_spec()->mutable_stop()->set_goal(0);
  EXPECT_THAT(outcomeOf(*parseWaitFor("goal"), status_, 1.0),
              isError(HasSubstr("this experiment has none")));
  for (const char* wrong : {"", "x", "update=", "update=x", "update=-1", "state=", "state=paussed",
                            "update=99999999999999999999", "finished "}) {
    EXPECT_EQ(codeOf(parseWaitFor(wrong)), ErrorCode::kUsage) << wrong;
  }
  EXPECT_THAT(parseWaitFor("state=paussed").error().message, HasSubstr("did you mean paused?"));
}

TEST(WaitTime, IsReadInUnits) {
  EXPECT_EQ(parseSpan("90s"), 90u);
  EXPECT_EQ(parseSpan("30m"), 1800u);
  EXPECT_EQ(parseSpan("2h"), 7200u);
  EXPECT_EQ(parseSpan("1h30m"), 5400u);
  EXPECT_EQ(parseSpan("1d"), 86400u);
  EXPECT_EQ(parseSpan("0s"), 0u);
  for (const char* wrong :
       {"", "90", "h", "1x", "-1s", "1.5h", "1 h", "999999999d", "99999999999999999999999s"}) {
    EXPECT_FALSE(parseSpan(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace allot
