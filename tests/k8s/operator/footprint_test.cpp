// What the program itself takes: allot-operator beside an API server that is in another process.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "tests/k8s/client/fake_api.h"
#include "tests/k8s/operator/experiments.h"

extern char** environ;

namespace allot {
namespace {

using kube::test::FakeApi;
using nlohmann::json;
using std::chrono::milliseconds;

// A sanitizer takes several times as much.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostMebibytes = 2048;
#else
constexpr double kMostMebibytes = 64;
#endif

class Operator {
 public:
  explicit Operator(const FakeApi& api) {
    const std::string url = "http://127.0.0.1:" + std::to_string(api.port());
    std::vector<std::string> arguments = {ALLOT_BIN_DIR "/allot-operator", "--api=" + url,
                                          "--status-url=" + url, "--lease-namespace=ns",
                                          "--port=0"};
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, pointers[0], nullptr, nullptr, pointers.data(), environ), 0);
  }
  ~Operator() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  // VmHWM: the most that was ever resident.
  double mebibytes(const std::string& field) const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1024;
    }
    return 0;
  }
  double cpuSeconds() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    std::string text;
    std::getline(file, text);
    std::istringstream rest(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) rest >> skipped;
    double user = 0, system = 0;
    rest >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t pid_ = 0;
};

// As large as a kubelet's: who set which field, what runs, where it came from.
json realisticPod(const std::string& experiment, const std::string& component, int number = 0) {
  json pod = test::pod(experiment, component, true, number);
  const json fields = {{"f:metadata", {{"f:labels", {{".", json::object()}}}}},
                       {"f:spec", {{"f:containers", json(std::string(1500, 'x'))}}}};
  pod["metadata"]["managedFields"] = json::array();
  for (const char* const manager : {"kube-controller-manager", "kubelet"}) {
    pod["metadata"]["managedFields"].push_back({{"manager", manager}, {"fieldsV1", fields}});
  }
  json variables = json::array();
  for (int i = 0; i < 40; ++i) {
    variables.push_back({{"name", "VARIABLE_" + std::to_string(i)}, {"value", "a value of it"}});
  }
  pod["spec"] = {{"containers", {{{"name", component}, {"env", variables}}}}};
  json& status = pod["status"];
  for (const char* const type : {"PodScheduled", "Initialized", "ContainersReady"}) {
    status["conditions"].push_back({{"type", type},
                                    {"status", "True"},
                                    {"lastTransitionTime", "2026-01-01T00:00:00Z"},
                                    {"lastProbeTime", nullptr}});
  }
  json& container = status["containerStatuses"][0];
  container["imageID"] = "registry.example.org/team/allot@sha256:" + std::string(64, 'a');
  container["containerID"] = "containerd://" + std::string(64, 'b');
  container["state"] = {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
  return pod;
}

TEST(OperatorFootprint, TwoHundredExperimentsOfTwoWorkers) {
  FakeApi api;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "x" + std::to_string(i);
    api.store().put(test::experiment(name, {{"workers", 2}}));
    for (const char* const component : {"store", "aggregator"}) {
      api.store().put(realisticPod(name, component));
    }
    for (int w = 0; w < 2; ++w) api.store().put(realisticPod(name, "worker", w));
  }
  // Of every aggregator.
  api.script({.contains = "/api/status",
              .body = test::told("running", 3).dump(),
              .times = std::numeric_limits<int>::max()});
  const Operator running(api);
  // Until it has made everything, and nothing is left to write for longer than it looks.
  size_t writes = 0;
  for (int quiet = 0, i = 0; quiet < 50 && i < 600; ++i) {
    std::this_thread::sleep_for(milliseconds(250));
    const size_t now = api.count("PATCH", "deployments") + api.count("PATCH", "experiments/status");
    quiet = now == writes && now >= 600 ? quiet + 1 : 0;
    writes = now;
  }
  EXPECT_GE(writes, 600u);  // two Deployments and one status each
  api.resetCounts();
  const double before = running.cpuSeconds();
  constexpr int kSeconds = 20;
  std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
  const double cpu = running.cpuSeconds() - before;
  const double resident = running.mebibytes("VmRSS"), most = running.mebibytes("VmHWM");
  printf(
      "[  200     ] experiments of 2 workers: %.1f MiB resident, %.1f at most, %.1f %% of a core\n",
      resident, most, 100 * cpu / kSeconds);
  EXPECT_GT(resident, 1);
  EXPECT_LT(most, kMostMebibytes);
  // The Lease is renewed; nothing else is written while nothing changes.
  EXPECT_EQ(api.writes(), api.count("PUT", "leases"));
}

}  // namespace
}  // namespace allot
