// Leading by a lease: the rules with a clock of the test's own, then two candidates at one server.
#include <atomic>

#include "k8s/client/leader_election.h"
#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/client/kube_objects.h"
#include "tests/results.h"
#include "tests/wait_for.h"

namespace allot::kube::test {
namespace {

const ObjectName kLease{"ns", "allot-operator"};
const json kLike = {{"apiVersion", "coordination.k8s.io/v1"},
                    {"kind", "Lease"},
                    {"metadata", {{"namespace", "ns"}, {"name", "allot-operator"}}}};

json record(const std::string& holder, int duration, int transitions, const std::string& renewed,
            const std::string& version) {
  json lease = kLike;
  lease["metadata"]["resourceVersion"] = version;
  lease["spec"] = {{"holderIdentity", holder},
                   {"leaseDurationSeconds", duration},
                   {"leaseTransitions", transitions},
                   {"acquireTime", "2001-01-01T00:00:00.000000Z"},
                   {"renewTime", renewed}};
  return lease;
}

class CandidateTest : public testing::Test {
 protected:
  using What = Candidate::Step::What;

  Candidate::Step next() { return candidate_.next(now_, WallTime(seconds(1'800'000'000))); }

  TimePoint now_{seconds(1000)};
  Candidate candidate_{kLease, "me", {}};
};

TEST_F(CandidateTest, TakesWhatNobodyHas) {
  EXPECT_EQ(next().what, What::kRead);
  candidate_.read(now_, std::nullopt);
  const auto step = next();
  ASSERT_EQ(step.what, What::kCreate);
  json expected = kLike;
  expected["spec"] = {{"holderIdentity", "me"},
                      {"leaseDurationSeconds", 15},
                      {"leaseTransitions", 0},
                      {"acquireTime", "2027-01-15T08:00:00.000000Z"},
                      {"renewTime", "2027-01-15T08:00:00.000000Z"}};
  EXPECT_EQ(step.object, expected);
  EXPECT_FALSE(candidate_.leads(now_));
  candidate_.wrote(now_, withVersion(step.object, "5"));
  EXPECT_TRUE(candidate_.leads(now_));
  // Renewed without being read again, with the version that was answered.
  now_ += seconds(2);
  const auto renewal = next();
  ASSERT_EQ(renewal.what, What::kReplace);
  EXPECT_EQ(renewal.object["metadata"]["resourceVersion"], "5");
  EXPECT_EQ(renewal.object["spec"]["leaseTransitions"], 0);
}

TEST_F(CandidateTest, ExpiryIsJudgedByOurClockSinceTheRecordChanged) {
  // Long over by its own time, and far in the future by its own time: neither counts.
  for (const char* renewed : {"2001-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"}) {
    Candidate candidate(kLease, "me", {});
    const auto what = [&] { return candidate.next(now_, WallTime()).what; };
    candidate.read(now_, record("other", 15, 3, renewed, "5"));
    EXPECT_EQ(what(), What::kRead);
    now_ += seconds(14);
    // The same record: the clock goes on. Another version of the same says nothing.
    candidate.read(now_, record("other", 15, 3, renewed, "6"));
    EXPECT_EQ(what(), What::kRead);
    now_ += seconds(1);
    EXPECT_EQ(what(), What::kRead);
    now_ += milliseconds(1);
    EXPECT_EQ(what(), What::kReplace);
    // A change, and it begins anew.
    candidate.read(now_, record("other", 15, 3, "2026-01-01T00:00:00.000000Z", "7"));
    EXPECT_EQ(what(), What::kRead);
    now_ += seconds(15) + milliseconds(1);
    const auto step = candidate.next(now_, WallTime());
    ASSERT_EQ(step.what, What::kReplace);
    EXPECT_EQ(step.object["metadata"]["resourceVersion"], "7");
    EXPECT_EQ(step.object["spec"]["leaseTransitions"], 4);
  }
}

TEST_F(CandidateTest, TakesAtOnceWhatWasGivenUp) {
  candidate_.read(now_, record("", 1, 3, "x", "5"));
  EXPECT_EQ(next().what, What::kReplace);
}

TEST_F(CandidateTest, RecordsOfOthersMaySayAnything) {
  for (const json& odd : {json(), json(7), json{{"holderIdentity", 7}},
                          json{{"holderIdentity", "x"}, {"leaseDurationSeconds", -5}},
                          json{{"holderIdentity", "x"}, {"leaseDurationSeconds", 1LL << 60}}}) {
    Candidate candidate(kLease, "me", {});
    json lease = kLike;
    lease["metadata"]["resourceVersion"] = "1";
    lease["spec"] = odd;
    candidate.read(now_, lease);
    // Free at once or after a time that can be waited for.
    EXPECT_EQ(candidate.next(now_ + seconds(3601), WallTime()).what, What::kReplace) << odd;
  }
}

TEST_F(CandidateTest, LeadsUntilTheRenewDeadlineSinceTheRequestWasSent) {
  candidate_.read(now_, std::nullopt);
  const TimePoint sent = now_;
  const json object = next().object;
  now_ += seconds(3);  // the answer took its time
  candidate_.wrote(sent, withVersion(object, "5"));
  EXPECT_TRUE(candidate_.leads(sent + milliseconds(9'999)));
  EXPECT_FALSE(candidate_.lost(sent + milliseconds(9'999)));
  EXPECT_FALSE(candidate_.leads(sent + seconds(10)));
  EXPECT_TRUE(candidate_.lost(sent + seconds(10)));
  // Failed renewals do not prolong it, a renewal does.
  candidate_.failed();
  EXPECT_EQ(next().what, What::kRead);
  candidate_.read(now_, withVersion(object, "5"));
  EXPECT_EQ(next().what, What::kReplace);
  candidate_.wrote(sent + seconds(9), withVersion(object, "6"));
  EXPECT_TRUE(candidate_.leads(sent + seconds(18)));
}

TEST_F(CandidateTest, WhoeverReadsAnotherNameHasLost) {
  candidate_.read(now_, std::nullopt);
  candidate_.wrote(now_, withVersion(next().object, "5"));
  candidate_.failed();  // a conflict
  candidate_.read(now_, record("other", 15, 1, "x", "6"));
  EXPECT_FALSE(candidate_.leads(now_));
  EXPECT_TRUE(candidate_.lost(now_));
  EXPECT_FALSE(candidate_.release(now_, WallTime()));
}

TEST_F(CandidateTest, ReleaseNamesNobodyForASecond) {
  EXPECT_FALSE(candidate_.release(now_, WallTime()));
  candidate_.read(now_, std::nullopt);
  candidate_.wrote(now_, withVersion(next().object, "5"));
  const auto last = valueOf(candidate_.release(now_, WallTime()));
  EXPECT_EQ(last["spec"]["holderIdentity"], "");
  EXPECT_EQ(last["spec"]["leaseDurationSeconds"], 1);
  EXPECT_EQ(last["metadata"]["resourceVersion"], "5");
}

TEST(LeaseTimes, MustFitEachOther) {
  EXPECT_TRUE(LeaseTimes{}.check());
  EXPECT_FALSE((LeaseTimes{seconds(10), seconds(10), seconds(2)}.check()));
  EXPECT_FALSE((LeaseTimes{seconds(15), seconds(10), milliseconds(8334)}.check()));
  EXPECT_TRUE((LeaseTimes{seconds(15), seconds(10), milliseconds(8333)}.check()));
}

class ElectionTest : public testing::Test {
 protected:
  struct Run {
    int won = 0;
    std::string lost;
    std::unique_ptr<LeaderElection> election;
  };
  void join(Run& run, const std::string& identity) {
    auto election = valueOf(LeaderElection::create(
        api_.access(),
        {.lease = kLease,
         .identity = identity,
         .limits = {.connect = milliseconds(500), .request = milliseconds(300)},
         .clock = [this] { return now_; }},
        [&run] { ++run.won; }, [&run](const std::string& why) { run.lost = why; }));
    run.election = std::move(election);
  }
  std::string holder() { return textAt(api_.store().find(kLike), {"spec", "holderIdentity"}); }

  FakeApi api_;
  TimePoint now_{seconds(1000)};
  Run a_;
  Run b_;
};

TEST_F(ElectionTest, OneLeadsAndTheOtherFollowsWhenItGoes) {
  join(a_, "a");
  join(b_, "b");
  EXPECT_TRUE(a_.election->turn());
  EXPECT_TRUE(b_.election->turn());
  EXPECT_TRUE(a_.election->leads());
  EXPECT_FALSE(b_.election->leads());
  EXPECT_EQ(b_.election->holder(), "a");
  for (int i = 0; i < 20; ++i) {
    now_ += seconds(2);
    EXPECT_TRUE(a_.election->turn());
    EXPECT_TRUE(b_.election->turn());
  }
  EXPECT_EQ(a_.won, 1);
  EXPECT_EQ(b_.won, 0);
  a_.election.reset();
  EXPECT_EQ(holder(), "");
  EXPECT_TRUE(b_.election->turn());
  EXPECT_TRUE(b_.election->leads());
  EXPECT_EQ(b_.won, 1);
  EXPECT_EQ(holder(), "b");
}

TEST_F(ElectionTest, OfTwoThatSeeAFreeLeaseOneGetsIt) {
  json lease = kLike;
  lease["spec"] = {{"holderIdentity", ""}, {"leaseDurationSeconds", 1}};
  const std::string stale = api_.store().put(lease).dump();
  lease["spec"]["holderIdentity"] = "b";
  lease["spec"]["leaseDurationSeconds"] = 15;
  api_.store().put(lease);
  // a reads it as it was before b took it: the swap fails.
  api_.script({.method = "GET", .contains = "leases", .body = stale});
  join(a_, "a");
  EXPECT_TRUE(a_.election->turn());
  EXPECT_EQ(api_.count("PUT", "leases"), 1u);
  EXPECT_FALSE(a_.election->leads());
  EXPECT_EQ(holder(), "b");
}

TEST_F(ElectionTest, WhoCannotRenewHasLostAndSaysSo) {
  join(a_, "a");
  EXPECT_TRUE(a_.election->turn());
  api_.script({.contains = "leases", .end = Scripted::End::kHang, .silent = true, .times = 100});
  now_ += seconds(6);
  EXPECT_TRUE(a_.election->turn());
  EXPECT_TRUE(a_.election->leads());
  now_ += seconds(4);
  EXPECT_FALSE(a_.election->leads());
  EXPECT_FALSE(a_.election->turn());
  EXPECT_THAT(a_.lost, HasSubstr("could not be renewed in time"));
  EXPECT_THAT(a_.lost, HasSubstr("no answer in time"));
  a_.election.reset();
  EXPECT_EQ(holder(), "a");  // what it does not lead it does not release
}

TEST_F(ElectionTest, AThiefIsNoticed) {
  join(a_, "a");
  EXPECT_TRUE(a_.election->turn());
  json lease = api_.store().find(kLike);
  lease["spec"]["holderIdentity"] = "thief";
  api_.store().put(lease);
  now_ += seconds(2);
  EXPECT_TRUE(a_.election->turn());  // the conflict
  now_ += seconds(2);
  EXPECT_FALSE(a_.election->turn());
  EXPECT_THAT(a_.lost, HasSubstr("to thief"));
}

TEST(LeaderElection, RunsOnItsOwnThread) {
  FakeApi api;
  std::atomic<bool> won{false};
  const LeaseTimes quick{seconds(1), milliseconds(500), milliseconds(20)};
  auto election = valueOf(LeaderElection::create(
      api.access(), {.lease = kLease, .times = quick}, [&] { won = true; },
      [](const std::string& why) { FAIL() << why; }));
  election->start();
  EXPECT_TRUE(waitFor([&] { return won && api.count("PUT", "leases") >= 5; }, 10));
  EXPECT_TRUE(election->leads());
  EXPECT_EQ(api.connections(), 1u);
  EXPECT_EQ(api.count("GET", "leases"), 1u);  // renewals do not read
  election.reset();
  const json lease = api.store().find(kLike);
  EXPECT_EQ(lease["spec"]["holderIdentity"], "");
  EXPECT_EQ(lease["spec"]["leaseDurationSeconds"], 1);
}

}  // namespace
}  // namespace allot::kube::test
