// allot --context: a run in a cluster, reached through kubectl. Real processes with the accounts
// that they have there; kubectl is fake_kubectl.py.
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "cli/cluster.h"
#include "core/digest.h"
#include "store/redis/acl.h"
#include "tests/e2e/programs.h"
#include "tests/store/redis_server.h"

namespace allot {
namespace {

constexpr char kExperiment[] = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: stay}
spec:
  model: {path: experiments/models/recall-7m}
  task: {suite: recall, tasks: [niah], contextTokens: 192, trainQuestions: 16, heldOutQuestions: 8}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {episodesPerUpdate: 2, maxUpdates: 2}
  evaluation: {everyUpdates: 0, budgets: [8], schedules: [learned], methods: [s2anta-sys]}
)";

class Cluster : public FolderTest {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ + "/bin");
    fs::copy(kSource + "/tests/e2e/fake_kubectl.py", folder_ + "/bin/kubectl");
    chmod((folder_ + "/bin/kubectl").c_str(), 0755);
    fs::create_symlink(server_.folder() + "/redis.sock", folder_ + "/redis.sock");
    writeStore("stay-accounts-1");
    writeSecrets({secretWith({"reader", "aggregator"})});
  }

  std::string passwordOf(const std::string& user) const {
    return readFile(server_.folder() + "/acl/" + user + ".password");
  }
  json secretWith(const std::vector<std::string>& users,
                  const std::string& name = "stay-accounts-1") const {
    json secret = {{"metadata", {{"name", name}}}, {"data", json::object()}};
    for (const std::string& user : users) {
      secret["data"][user + ".password"] = toBase64(passwordOf(user));
    }
    return secret;
  }
  void writeSecrets(const std::vector<json>& secrets) const {
    say("secrets.json", json(secrets).dump());
  }
  // The store of experiment stay with the accounts of this Secret.
  void writeStore(const std::string& secret) const {
    const json volumes = {{{"name", "config"}, {"configMap", {{"name", "stay-redis-1"}}}},
                          {{"name", "accounts"}, {"secret", {{"secretName", secret}}}}};
    const json store = {
        {"metadata", {{"namespace", "stay"}, {"labels", {{"allot.dev/experiment", "stay"}}}}},
        {"spec", {{"template", {{"spec", {{"volumes", volumes}}}}}}}};
    say("stores.json", json{{"items", {store}}}.dump());
  }
  void say(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string urlOf(const std::string& user) const {
    return server_.url() + "?user=" + user + "&password-file=" + server_.folder() + "/acl/" + user +
           ".password";
  }
  Output allotAs(const std::string& path, std::vector<std::string> arguments) const {
    return valueOf(capture(
        {kBin + "/allot", std::move(arguments), {{"PATH", path}, {"FAKE_CLUSTER", folder_}}}));
  }
  Output allot(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--context", "test", "--experiment", "stay"});
    return allotAs(folder_ + "/bin:/usr/bin:/bin", std::move(arguments));
  }
  std::string said(const std::vector<std::string>& arguments) const {
    const Output output = allot(arguments);
    EXPECT_EQ(output.status, 0) << arguments[0] << ": " << output.out << output.err;
    return output.out;
  }
  // Refused in one sentence.
  static std::string sentence(const Output& output, int status) {
    EXPECT_EQ(output.status, status) << output.out << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    return output.err;
  }
  json statusOf() const { return json::parse(allot({"status", "--json"}).out, nullptr, false); }
  // A kubectl of this test that has been left behind.
  bool isForwarding() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (readFile(entry.path() / "cmdline").find(folder_ + "/bin/kubectl") != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  test::RedisServer server_{{"--aclfile", "FOLDER/acl/users.acl"}, [](const std::string& folder) {
                              EXPECT_TRUE(writeAcl(folder + "/acl"));
                            }};
};

TEST_F(Cluster, EveryCommandReachesTheRunThroughKubectl) {
  say("experiment.yaml", kExperiment);
  const std::string file = folder_ + "/experiment.yaml";
  auto aggregator = ChildProcess::start(
      {kBin + "/allot-aggregator",
       {"--redis", urlOf("aggregator"), "--experiment", file, "--stay", "--port", "0"},
       {}},
      folder_ + "/aggregator.log");
  auto worker = ChildProcess::start({kBin + "/allot-worker",
                                     {"--redis", urlOf("worker"), "--experiment", "stay", "--stay",
                                      "--model", kModel, "--kv-memory", "128"},
                                     {}},
                                    folder_ + "/worker.log");
  ASSERT_TRUE(aggregator && worker);
  json status;
  for (int i = 0; i < 100 && !(status.is_object() && status["state"] == "finished"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    status = statusOf();
  }
  ASSERT_TRUE(status.is_object() && status["state"] == "finished")
      << status << readFile(folder_ + "/aggregator.log") << readFile(folder_ + "/worker.log");
  EXPECT_THAT(said({"status"}), HasSubstr("stay  run " + status["run_id"].get<std::string>()));
  EXPECT_THAT(said({"top"}), HasSubstr("total budget 8"));
  EXPECT_THAT(said({"verify"}), HasSubstr("verified: 2 updates"));
  EXPECT_THAT(said({"export", "--out", folder_ + "/out"}), HasSubstr("exported: 2 updates"));
  EXPECT_TRUE(fs::exists(folder_ + "/out/export.json"));
  const std::string run = status["run_id"];
  said({"export", "--out", folder_ + "/{run}/of {run}"});
  EXPECT_TRUE(fs::exists(folder_ + "/" + run + "/of " + run + "/export.json"));
  EXPECT_THAT(said({"set", "spec.staleness.rhoBar=2"}), HasSubstr("1 -> 2"));
  // So many that it goes on while it is told other things.
  EXPECT_THAT(said({"extend", "--updates", "60"}), HasSubstr("it goes on to 62"));
  EXPECT_THAT(sentence(allot({"stop", "--run", "01JGFJJZ005QXH2M4N6P7R8S9T"}), 64),
              HasSubstr("has not begun"));
  EXPECT_THAT(said({"pause", "--run", run}),
              HasSubstr("`allot resume --context test --experiment stay --run " + run + "`"));
  EXPECT_THAT(said({"status"}), HasSubstr("allot resume --context test --experiment stay"));
  EXPECT_EQ(allot({"status", "--exit-code"}).status, 1);
  EXPECT_THAT(said({"resume"}), HasSubstr("running again"));
  EXPECT_THAT(said({"wait", "--for", "update=3", "--timeout", "1m"}), HasSubstr("run " + run));
  EXPECT_THAT(said({"wait", "--for", "finished", "--timeout", "1m"}), HasSubstr("update 62"));

  // All experiments of a cluster; a run of it continued here; and one put into its store.
  const Output listed =
      allotAs(folder_ + "/bin:/usr/bin:/bin", {"list", "--context", "test", "-o", "json"});
  const json runs = json::parse(listed.out, nullptr, false)["runs"];
  ASSERT_EQ(runs.size(), 1u) << listed.out << listed.err;
  EXPECT_EQ(runs[0]["run_id"], run);
  EXPECT_EQ(runs[0]["state"], "finished");
  EXPECT_EQ(runs[0]["where"], "stay");
  EXPECT_THAT(readFile(folder_ + "/calls"),
              HasSubstr("--context=test --all-namespaces get statefulset "
                        "--selector=allot.dev/experiment,app.kubernetes.io/component=store"));
  EXPECT_THAT(sentence(allot({"import", folder_ + "/out"}), 64), HasSubstr(run));  // it is there
  const Output fork = allot({"fork", "--from", "@1", file, "--dir", folder_ + "/fork", "--model",
                             kModel, "--workers", "1"});
  EXPECT_EQ(fork.status, 0) << fork.err;
  EXPECT_THAT(fork.err, HasSubstr("fork of run " + run + " at version 1"));
  const std::string path = folder_ + "/bin:/usr/bin:/bin";
  const Output imported = allotAs(path, {"import", folder_ + "/fork", "--context", "test"});
  EXPECT_EQ(imported.status, 0) << imported.err;  // into the store of the export's experiment
  EXPECT_THAT(imported.out, HasSubstr("of stay, 2 updates"));

  // What only reads needs no more than the reader's password.
  writeSecrets({secretWith({"reader"})});
  EXPECT_THAT(said({"verify"}), HasSubstr("verified: "));
  EXPECT_THAT(sentence(allot({"pause"}), 64),
              HasSubstr("Secret stay-accounts-1 in namespace stay has no aggregator.password"));
  // Secrets of other passwords stay behind; the one counts that the store runs with.
  json other = secretWith({"reader"}, "stay-accounts-2");
  other["data"]["reader.password"] = toBase64("of another day");
  writeSecrets({other, secretWith({"reader"})});
  EXPECT_THAT(said({"verify"}), HasSubstr("verified: "));
  writeStore("stay-accounts-2");
  EXPECT_THAT(sentence(allot({"status"}), 64), HasSubstr("does not take the password"));
  other["data"]["reader.password"] = "not base64";
  writeSecrets({other});
  EXPECT_THAT(sentence(allot({"status"}), 65), HasSubstr("is not base64"));
  writeStore("--all");
  EXPECT_THAT(sentence(allot({"status"}), 64), HasSubstr("that names its Secret"));

  writeStore("stay-accounts-1");
  writeSecrets({secretWith({"reader"})});
  say("connections", "1");
  EXPECT_THAT(sentence(allot({"status"}), 69),
              AllOf(HasSubstr("svc/stay-redis in namespace stay: lost connection to pod"),
                    HasSubstr("try again")));
  EXPECT_FALSE(isForwarding());
  const std::string calls = readFile(folder_ + "/calls");
  EXPECT_THAT(calls, HasSubstr("--context=test --namespace=stay get statefulset "
                               "--selector=allot.dev/experiment=stay,"
                               "app.kubernetes.io/component=store --output=json"));
  EXPECT_THAT(calls, HasSubstr("--namespace=stay get secret stay-accounts-1 --output=json"));
  EXPECT_THAT(calls, Not(HasSubstr(passwordOf("reader"))));
}

TEST_F(Cluster, WhatIsMissingIsSaidInOneSentence) {
  const std::string path = folder_ + "/bin:/usr/bin:/bin";
  const auto refused = [&](const std::vector<std::string>& arguments) {
    return sentence(allotAs(path, arguments), 64);
  };
  EXPECT_THAT(
      sentence(allotAs("/nowhere", {"status", "--context", "-", "--experiment", "stay"}), 64),
      HasSubstr("kubectl was not found"));
  EXPECT_THAT(refused({"status", "--context", "other", "--experiment", "stay"}),
              HasSubstr("context \"other\" does not exist"));
  EXPECT_THAT(refused({"status", "--context", "test"}), HasSubstr("add --experiment NAME"));
  EXPECT_THAT(refused({"status", "--context", "test", "--experiment", "a,b=c"}),
              HasSubstr("no name that Kubernetes allows"));
  EXPECT_THAT(refused({"status", "--namespace", "x"}), HasSubstr("add --context CTX"));
  EXPECT_THAT(refused({"status", "--context", "test", "--redis", server_.url()}),
              HasSubstr("not both"));
  EXPECT_THAT(refused({"status", folder_, "--context", "test"}), HasSubstr("not both"));
  EXPECT_THAT(refused({"status", "--context", "current", "--experiment", "stay"}),
              HasSubstr("there is no run in this store"));
  EXPECT_THAT(refused({"status", "--context", "-", "--experiment", "gone"}),
              HasSubstr("services \"gone-redis\" not found"));
  EXPECT_THAT(readFile(folder_ + "/calls"), HasSubstr("\n--namespace=gone port-forward"));
  writeSecrets({});
  EXPECT_THAT(refused({"status", "--context", "-", "--experiment", "stay"}),
              HasSubstr("secrets \"stay-accounts-1\" not found"));
  say("stores.json", R"({"items": []})");
  EXPECT_THAT(refused({"status", "--context", "-", "--experiment", "stay", "--namespace", "y"}),
              HasSubstr("namespace y has no StatefulSet of experiment stay's store"));
  say("stores.json", R"({"items": [7, {"spec": {"template": "x"}}]})");
  EXPECT_THAT(refused({"status", "--context", "-", "--experiment", "stay"}),
              HasSubstr("that names its Secret"));
  say("denied", "Error from server (Forbidden): secrets is forbidden: User \"me\" cannot list");
  EXPECT_THAT(refused({"status", "--context", "-", "--experiment", "stay"}),
              HasSubstr("secrets is forbidden: User \"me\" cannot list"));
  say("denied", "Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout");
  EXPECT_THAT(sentence(allotAs(path, {"status", "--context", "-", "--experiment", "stay"}), 69),
              HasSubstr("Unable to connect to the server"));
  EXPECT_FALSE(isForwarding());
}

TEST(FromBase64, IsTheInverseAndRefusesWhatIsNot) {
  std::string all;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(fromBase64(toBase64(all)), all);
    all += static_cast<char>(i);
  }
  for (const char* bad : {"a", "ab", "abc", "a===", "ab=c", "====", "ab c", "abc\n", "abcde==="}) {
    EXPECT_EQ(fromBase64(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace allot
