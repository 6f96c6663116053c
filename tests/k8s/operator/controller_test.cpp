// The controller against an API server: from any state, after anything, the same end.
#include "k8s/operator/controller.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/k8s/operator/cluster_fixture.h"

namespace allot {
namespace {

using kube::textAt;
using kube::test::FakeApi;
using nlohmann::json;
using std::chrono::milliseconds;
using test::experiment;

using ControllerTest = test::ClusterTest;

TEST_F(ControllerTest, AnExperimentsWholeLife) {
  put(experiment("x"));
  auto controller = settled();
  EXPECT_EQ(replicas("x"), 1);
  EXPECT_EQ(reason("x", "Accepted"), "Valid");
  const json secret = find("v1", "Secret", "x-accounts");
  ASSERT_FALSE(secret.is_null());

  putPods("x");
  told_["x"] = test::told("running", 3);
  settle(controller.get());
  EXPECT_EQ(reason("x", "Progressing"), "Running");
  EXPECT_EQ(find("x")["status"]["progress"], "3/150");
  EXPECT_EQ(find("x")["status"]["workers"]["pods"], 1);

  json scaled = find("x");
  scaled["spec"]["cluster"]["workers"] = 6;
  put(scaled);
  settle(controller.get());
  EXPECT_EQ(replicas("x"), 6);

  told_["x"] = test::told("finished", 150);
  settle(controller.get());
  EXPECT_EQ(replicas("x"), 0);  // their GPUs are free
  EXPECT_EQ(reason("x", "Complete"), "Finished");

  told_["x"] = test::told("running", 150);  // allot extend
  settle(controller.get());
  EXPECT_EQ(replicas("x"), 6);
  EXPECT_EQ(find("v1", "Secret", "x-accounts")["data"], secret["data"]);
}

TEST_F(ControllerTest, AFileThatCannotBeRunStartsNothingUntilItIsMended) {
  json bad = experiment("x");
  bad["spec"]["policy"]["totalBudget"] = 0;
  put(bad);
  auto controller = settled();
  EXPECT_EQ(reason("x", "Accepted"), "Invalid");
  EXPECT_TRUE(api_.store().all("deployments").empty());
  json mended = find("x");
  mended["spec"]["policy"]["totalBudget"] = 8;
  mended["metadata"]["generation"] = mended["metadata"]["generation"].get<int>() + 1;
  put(mended);
  settle(controller.get());
  EXPECT_EQ(reason("x", "Accepted"), "Valid");
  EXPECT_EQ(replicas("x"), 1);
}

// A new operator finds what the one before it made, and changes nothing of it.
TEST_F(ControllerTest, AnotherOperatorGoesOnWithTheSamePasswords) {
  put(experiment("x", {{"workers", 2}}));
  settled();
  const json secret = find("v1", "Secret", "x-accounts");
  const json worker = find("apps/v1", "Deployment", "x-worker");
  const auto next = settled();
  EXPECT_EQ(find("v1", "Secret", "x-accounts")["data"], secret["data"]);
  EXPECT_EQ(find("apps/v1", "Deployment", "x-worker")["spec"], worker["spec"]);
}

TEST_F(ControllerTest, WhatTheClusterRefusesIsSaidAndTriedAgain) {
  api_.script({.method = "PATCH",
               .contains = "statefulsets",
               .status = 422,
               .body = R"({"kind":"Status","code":422,"reason":"Invalid","message":"volume"})",
               .times = 2});
  put(experiment("x"));
  auto controller = start();
  for (int i = 0; i < 10; ++i) controller->turn(milliseconds(20));
  EXPECT_EQ(replicas("x"), 1);  // the rest is not held up
  std::string seen;
  for (int i = 0; i < 200 && seen != "AsWanted"; ++i) {
    controller->turn(milliseconds(20));
    if (reason("x", "Degraded") == "NotApplied") seen = "NotApplied";
    if (seen == "NotApplied" && reason("x", "Degraded") == "AsWanted") seen = "AsWanted";
  }
  EXPECT_EQ(seen, "AsWanted");
  EXPECT_FALSE(find("apps/v1", "StatefulSet", "x-redis").is_null());
}

// Whatever happens in whatever order, once it is over the cluster is as the experiments say.
TEST_F(ControllerTest, TheEndIsTheSameWhateverCameBefore) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto upTo = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    auto controller = start();
    for (int step = 0; step < 25; ++step) {
      const std::string name = upTo(2) == 0 ? "a" : "b";
      json object = find(name);
      switch (upTo(8)) {
        case 0:
          if (object.is_null()) object = experiment(name);
          object["spec"]["cluster"]["workers"] = upTo(5);
          put(object);
          break;
        case 1:
          if (!object.is_null()) object["spec"]["cluster"]["suspend"] = upTo(2) == 0;
          if (!object.is_null()) put(object);
          break;
        case 2: {
          json worker = find("apps/v1", "Deployment", name + "-worker");
          if (worker.is_null()) break;
          worker["spec"]["replicas"] = 77;  // a stranger's hand
          put(worker);
          break;
        }
        case 3:
          api_.store().remove(
              kube::test::targetOf(find("apps/v1", "StatefulSet", name + "-redis").is_null()
                                       ? experiment("none")
                                       : find("apps/v1", "StatefulSet", name + "-redis")),
              {});
          break;
        case 4:
          told_[name] = test::told(upTo(2) == 0 ? "finished" : "running", upTo(150));
          break;
        case 5:
          api_.cutConnections();
          break;
        case 6:
          controller.reset();
          controller = start();
          break;
        default:
          controller->turn(milliseconds(5));
      }
    }
    for (const char* const name : {"a", "b"}) {
      json object = experiment(name, {{"workers", 3}, {"suspend", false}});
      if (const json before = find(name); !before.is_null()) {
        object["metadata"] = before["metadata"];
        if (before.contains("status")) object["status"] = before["status"];
      }
      put(object);
      told_[name] = test::told("running", 7);
      putPods(name);
    }
    api_.clearScript();
    settle(controller.get());
    std::this_thread::sleep_for(milliseconds(1100));  // back-offs of what was cut
    settle(controller.get());
    for (const std::string name : {"a", "b"}) {
      EXPECT_EQ(replicas(name), 3);
      EXPECT_EQ(find("apps/v1", "StatefulSet", name + "-redis")["spec"]["replicas"], 1);
      EXPECT_EQ(find(name)["status"]["progress"], "7/150");
      EXPECT_EQ(reason(name, "Progressing"), "Running");
      EXPECT_EQ(reason(name, "Degraded"), "AsWanted");
    }
  }
}

// Else who has lost the lease, or hangs, would be noticed minutes later; and nobody waits for ever.
TEST_F(ControllerTest, NoTurnIsLongAndEachComesToItsTurn) {
  kube::TimePoint now{};
  adjust_ = [&](ControllerOptions* options) {
    options->clock = [&now] { return now += milliseconds(600); };  // a slow server
    options->look_every = milliseconds(60'000);
  };
  for (int i = 0; i < 40; ++i) put(experiment("x" + std::to_string(i)));
  auto controller = start();
  size_t most = 0;
  for (int i = 0; i < 40 && api_.store().all("statefulsets").size() < 40; ++i) {
    const size_t before = api_.count("PATCH", "statefulsets");
    controller->turn(milliseconds(20));
    most = std::max(most, api_.count("PATCH", "statefulsets") - before);
    // One that changes all the time keeps no other from its turn.
    json object = find("x0");
    object["metadata"]["annotations"]["now"] = std::to_string(i);
    put(object);
  }
  EXPECT_EQ(api_.store().all("statefulsets").size(), 40u);
  EXPECT_LE(most, 10u);
}

TEST_F(ControllerTest, WhatNobodyListsIsAppliedAgainButNotAllAtOnce) {
  kube::TimePoint now{};
  adjust_ = [&](ControllerOptions* options) {
    options->clock = [&now] { return now; };
    options->apply_again = milliseconds(600'000);
  };
  for (int i = 0; i < 40; ++i) put(experiment("x" + std::to_string(i)));
  auto controller = settled();
  const auto applied = [&] { return api_.count("PATCH", "services"); };
  const size_t all = applied(), each = all / 40;
  size_t most = 0;
  for (int minute = 0; minute < 20; ++minute) {
    const size_t before = applied();
    now += milliseconds(60'000);
    settle(controller.get());
    most = std::max(most, applied() - before);
  }
  EXPECT_GE(applied(), 2 * all);
  EXPECT_LE(applied(), 3 * all);
  EXPECT_LE(most, 15 * each);
}

TEST_F(ControllerTest, ManyExperimentsAreQuietWhileNothingChanges) {
  for (int i = 0; i < 200; ++i) {
    const std::string name = "x" + std::to_string(i);
    put(experiment(name, {{"workers", 2}}));
    for (const char* const component : {"store", "aggregator"}) {
      put(test::pod(name, component, true));
    }
    for (int w = 0; w < 2; ++w) put(test::pod(name, "worker", true, w));
    told_[name] = test::told("running", 3);
  }
  auto controller = settled();
  EXPECT_EQ(controller->counts().experiments, 200u);
  api_.resetCounts();
  const auto cpu = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = cpu();
  constexpr int kTurns = 5;
  for (int i = 0; i < kTurns; ++i) controller->turn(milliseconds(0));
  printf("[  200     ] a look at 200 experiments of 2 workers: %.0f ms of one core\n",
         (cpu() - before) / kTurns * 1000);
  EXPECT_EQ(api_.writes(), 0u);
}

}  // namespace
}  // namespace allot
