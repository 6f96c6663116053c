#pragma once
// A controller, and the API server that it works against.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "k8s/operator/controller.h"
#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/operator/experiments.h"

namespace allot::test {

class ClusterTest : public testing::Test {
 protected:
  std::unique_ptr<Controller> start() {
    ControllerOptions options;
    options.instance = "test";
    options.look_every = std::chrono::milliseconds(0);  // at each turn
    options.unix_ms = [this] { return now_ms_ += 1000; };
    options.ask = [this](const std::string&,
                         const std::string& name) -> std::optional<nlohmann::json> {
      const auto found = told_.find(name);
      return found == told_.end() ? std::nullopt : std::optional(found->second);
    };
    options.passwords = [] {
      return Result<std::map<std::string, std::string>>(std::map<std::string, std::string>{
          {"worker", "w"}, {"aggregator", "a"}, {"admin", "m"}, {"reader", "r"}});
    };
    if (adjust_) adjust_(&options);
    return std::make_unique<Controller>(api_.access(), options);
  }
  // One that has come to rest.
  std::unique_ptr<Controller> settled() {
    auto controller = start();
    settle(controller.get());
    return controller;
  }
  // The store, the aggregator and one worker of an experiment, which are ready.
  void putPods(const std::string& name) {
    for (const char* const component : {"store", "aggregator", "worker"}) {
      put(pod(name, component, true));
    }
  }
  // Until it knows of all experiments, and five turns in a row write nothing: news take a while on
  // a machine that is busy. The number of turns.
  int settle(Controller* controller) {
    int quiet = 0, turns = 0;
    while (quiet < 5 && turns < 400) {
      const size_t before = api_.writes();
      controller->turn(std::chrono::milliseconds(20));
      const bool knows = controller->counts().experiments == api_.store().all("experiments").size();
      quiet = knows && api_.writes() == before ? quiet + 1 : 0;
      ++turns;
    }
    EXPECT_LT(turns, 400) << "it never rests";
    return turns;
  }
  nlohmann::json find(const std::string& version, const std::string& kind,
                      const std::string& name) {
    return api_.store().find({{"apiVersion", version},
                              {"kind", kind},
                              {"metadata", {{"namespace", "ns"}, {"name", name}}}});
  }
  nlohmann::json find(const std::string& name) {
    return find("allot.dev/v1alpha1", "Experiment", name);
  }
  void put(const nlohmann::json& object) { api_.store().put(object); }
  int replicas(const std::string& name) {
    return find("apps/v1", "Deployment", name + "-worker")["spec"].value("replicas", -1);
  }
  std::string reason(const std::string& name, const std::string& type) {
    const nlohmann::json object = find(name);
    const nlohmann::json status = object.value("status", nlohmann::json::object());
    const nlohmann::json* const condition = conditionOf(status, type);
    return condition == nullptr ? "none" : kube::textAt(*condition, {"reason"});
  }

  // The reasons of all events.
  std::set<std::string> events() {
    std::set<std::string> reasons;
    for (const nlohmann::json& event : api_.store().all("events")) {
      reasons.insert(kube::textAt(event, {"reason"}));
    }
    return reasons;
  }

  kube::test::FakeApi api_;
  std::function<void(ControllerOptions*)> adjust_;
  uint64_t now_ms_ = 1'700'000'000'000;
  std::map<std::string, nlohmann::json> told_;
};

}  // namespace allot::test
