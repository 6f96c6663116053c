// Aggregator and workers as they run in a cluster: they find their run by the experiment's name,
// stay at its end, take up edits of the file, and leave in good order on SIGTERM. Real binaries, a
// real redis-server, the real model.
#include <signal.h>

#include <deque>
#include <sstream>
#include <thread>

#include "core/ulid.h"
#include "tests/e2e/programs.h"
#include "tests/http_get.h"
#include "tests/store/redis_server.h"

namespace allot {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Few and short prompts; two episodes an update.
struct Settings {
  int budget = 8;
  std::string rate = "0.05";
  int updates = 4000;
  int train_questions = 16;
  int context = 192;
  int episodes_per_pull = 1;
  int episodes_per_update = 2;
  std::string model = "experiments/models/recall-7m";
};

std::string yamlOf(const Settings& s) {
  const auto number = [](int value) { return std::to_string(value); };
  return "apiVersion: allot.dev/v1alpha1\nkind: Experiment\nmetadata: {name: stay}\nspec:\n"
         "  seed: 7\n  model: {path: " +
         s.model +
         "}\n"
         "  task: {suite: recall, tasks: [niah], contextTokens: " +
         number(s.context) + ", trainQuestions: " + number(s.train_questions) +
         ", heldOutQuestions: 8}\n"
         "  policy: {totalBudget: " +
         number(s.budget) +
         "}\n  rollout: {questionsPerEpisode: 8, episodesPerPull: " + number(s.episodes_per_pull) +
         "}\n  update: {episodesPerUpdate: " + number(s.episodes_per_update) +
         ", maxUpdates: " + number(s.updates) + ", learningRate: \"" + s.rate +
         "\"}\n  evaluation: {everyUpdates: 0, budgets: [8], schedules: [learned], methods: "
         "[s2anta-sys]}\n";
}

class Stay : public FolderTest {
 protected:
  void SetUp() override { write(yamlOf({})); }
  void TearDown() override {
    processes_.clear();
    if (HasFailure()) temp_.printLogs();
  }

  // As a ConfigMap's mount does it: at once.
  void write(const std::string& yaml) const {
    std::ofstream(dir("next.yaml")) << yaml;
    fs::rename(dir("next.yaml"), dir("experiment.yaml"));
  }
  ChildProcess& start(const std::string& program, const std::string& log,
                      std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--redis", server_.url()});
    auto process = valueOf(
        ChildProcess::start({kBin + "/" + program, std::move(arguments), {}}, dir(log + ".log")));
    return processes_.emplace_back(std::move(process));
  }
  ChildProcess& startAggregator(const std::string& log,
                                std::vector<std::string> more = {"--stay"}) {
    more.insert(more.end(), {"--experiment", dir("experiment.yaml"), "--dir", dir("out"), "--port",
                             "0", "--lease-ms", "1000"});
    fs::create_directories(dir("out"));
    return start("allot-aggregator", log, std::move(more));
  }
  ChildProcess& startWorker(const std::string& log, std::vector<std::string> more = {"--stay"}) {
    more.insert(more.end(),
                {"--experiment", "stay", "--name", log, "--model", kModel, "--kv-memory", "512"});
    return start("allot-worker", log, std::move(more));
  }
  Output allot(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--redis", server_.url()});
    return valueOf(capture({kBin + "/allot", std::move(arguments), {}}));
  }
  // Waits until a file holds a text.
  bool says(const std::string& file, const std::string& text, int seconds) const {
    return waitFor([&] { return readFile(dir(file)).find(text) != std::string::npos; }, seconds);
  }
  json status() const {
    const Output output = allot({"status", "--json"});
    return output.status == 0 ? json::parse(output.out, nullptr, false) : json::object();
  }
  uint64_t version() const { return status().value("version", uint64_t{0}); }
  std::string stateNow() const { return status().value("state", std::string()); }
  std::string refusedEdit() const { return status().value("edit_refused", std::string()); }
  std::string workerState() const {
    const json now = status();
    return now.contains("workers") && !now["workers"].empty()
               ? now["workers"][0]["state"].get<std::string>()
               : "";
  }

  test::RedisServer server_;
  std::deque<ChildProcess> processes_;
};

TEST_F(Stay, AWorkerThatCannotLoadSaysWhyInTheRunUntilOneOfItsNameCan) {
  ChildProcess& broken = start("allot-worker", "broken",
                               {"--stay", "--experiment", "stay", "--name", "w", "--model",
                                "/nowhere", "--port", "0", "--target-file", dir("target.json")});
  const auto started = [&] {
    const json target = json::parse(readFile(dir("target.json")), nullptr, false);
    if (!target.is_array()) return std::string();
    const auto at = target[0]["targets"][0].get<std::string>();
    const auto reply =
        test::httpGet(static_cast<uint16_t>(std::stoul(at.substr(at.rfind(':') + 1))), "/startedz");
    return std::to_string(reply.status) + " " + reply.body;
  };
  // Without a run there is nothing to load: no reason to start it again.
  EXPECT_TRUE(waitFor([&] { return started() == "200 started: it waits for its run\n"; }, 30));
  startAggregator("aggregator");
  EXPECT_EQ(broken.waitFor(seconds(30)).value_or(-1), 64);
  ASSERT_TRUE(waitFor([&] { return workerState() == "failed"; }, 30));
  const json now = status();
  EXPECT_EQ(now["workers"].size(), 1u);
  EXPECT_EQ(now["workers"][0]["worker"], "w");
  EXPECT_THAT(now["workers"][0]["last_error"], HasSubstr("there is no folder"));
  EXPECT_THAT(now["not_progressing"],
              HasSubstr("no worker is alive; the last one ended: spec.model.path"));
  startWorker("w");
  ASSERT_TRUE(waitFor([&] { return version() > 0; }, 60));
  EXPECT_EQ(status()["workers"].size(), 1u);
  EXPECT_NE(workerState(), "failed");
}

TEST_F(Stay, AtTheEndOfTheGracePeriodAnEpisodeIsDroppedWhole) {
  // Ten episodes at once, most of whose time goes into reading 64 prompts.
  Settings slow;
  slow.train_questions = 64;
  slow.context = 512;
  slow.episodes_per_pull = slow.episodes_per_update = 10;
  write(yamlOf(slow));
  ChildProcess& hasty = startWorker("hasty", {"--stay", "--grace", "0"});
  startAggregator("aggregator");
  ASSERT_TRUE(waitFor([&] { return workerState() == "rollout"; }, 60));
  hasty.signal(SIGTERM);
  EXPECT_EQ(hasty.waitFor(seconds(3)).value_or(-1), 0);
  EXPECT_THAT(readFile(dir("hasty.log")), HasSubstr("10 episodes are given up"));
  json now = status();
  EXPECT_EQ(now["waiting_results"], 0);
  EXPECT_EQ(now["version"], 0);
  EXPECT_EQ(now["workers"].size(), 0u);

  ChildProcess& patient = startWorker("patient", {"--stay", "--grace", "100"});
  ASSERT_TRUE(waitFor([&] { return workerState() == "rollout"; }, 60));
  patient.signal(SIGTERM);
  EXPECT_EQ(patient.waitFor(seconds(90)).value_or(-1), 0);
  ASSERT_TRUE(waitFor([&] { return version() == 1; }, 10));
  now = status();
  EXPECT_EQ(now["episodes"], 10);  // those ten and no more
  EXPECT_EQ(now["waiting_results"], 0);
  EXPECT_EQ(now["workers"].size(), 0u);
}

TEST_F(Stay, EditsOfTheFileAreTakenUpOrRefusedWhileTheRunGoesOn) {
  startWorker("worker");
  ChildProcess* aggregator = &startAggregator("aggregator");
  ASSERT_TRUE(waitFor([&] { return version() >= 1; }, 60));
  EXPECT_EQ(refusedEdit(), "");

  Settings edited;
  edited.updates = 3000;
  write(yamlOf(edited));
  EXPECT_TRUE(waitFor([&] { return status()["max_updates"] == 3000; }, 5));
  EXPECT_THAT(readFile(dir("aggregator.log")), HasSubstr("spec.update.maxUpdates is now 3000"));

  Settings other = edited;
  other.budget = 16;
  other.rate = "0.01";
  write(yamlOf(other));
  ASSERT_TRUE(waitFor([&] { return !refusedEdit().empty(); }, 5));
  EXPECT_THAT(refusedEdit(), HasSubstr("spec.policy.totalBudget cannot change from 8 to 16"));
  EXPECT_THAT(allot({"status"}).out, HasSubstr("edit refused: spec.policy.totalBudget"));
  const uint64_t before = version();
  EXPECT_TRUE(waitFor([&] { return version() > before + 1; }, 30));

  // Nor does a new process mind, which goes on with the run as it is stored.
  aggregator->signal(SIGTERM);
  EXPECT_EQ(aggregator->waitFor(seconds(20)).value_or(-1), 0);
  EXPECT_THAT(readFile(dir("out/history.jsonl")), Not(HasSubstr("\"learning_rate\":0.01,")));
  const json run = status()["run_id"];
  aggregator = &startAggregator("again");
  ASSERT_TRUE(waitFor([&] { return version() > before + 3; }, 30));
  EXPECT_THAT(refusedEdit(), HasSubstr("spec.policy.totalBudget"));
  EXPECT_EQ(status()["run_id"], run);

  std::ofstream(dir("experiment.yaml")) << yamlOf(edited).substr(0, 150);
  ASSERT_TRUE(waitFor([&] { return refusedEdit().find("totalBudget") == std::string::npos; }, 5));
  EXPECT_THAT(refusedEdit(), HasSubstr("experiment.yaml"));
  fs::remove(dir("experiment.yaml"));
  ASSERT_TRUE(
      waitFor([&] { return refusedEdit().find("cannot be read") != std::string::npos; }, 5));
  // With a file that names nothing a new process still finds its run.
  aggregator->signal(SIGKILL);
  aggregator->waitFor(seconds(5));
  startAggregator("third");
  const uint64_t then = version();
  ASSERT_TRUE(waitFor([&] { return version() > then + 1; }, 30));

  edited.rate = "0.02";
  write(yamlOf(edited));
  EXPECT_TRUE(waitFor([&] { return refusedEdit().empty(); }, 5));
  EXPECT_THAT(readFile(dir("third.log")), HasSubstr("spec.update.learningRate is now 0.02"));
}

// A typo in the first apply is mended in the file.
TEST_F(Stay, BeforeTheFirstResultTheEditedFileReplacesTheExperiment) {
  Settings typo;
  typo.model = kModel + "-of-mine";
  write(yamlOf(typo));
  startAggregator("aggregator");
  const std::vector<std::string> plain = {"--stay", "--experiment", "stay", "--kv-memory", "512"};
  ChildProcess& first = start("allot-worker", "first", plain);
  EXPECT_EQ(first.waitFor(seconds(30)).value_or(-1), static_cast<int>(ErrorCode::kUsage));
  EXPECT_THAT(readFile(dir("first.log")), HasSubstr("recall-7m-of-mine"));
  const json run = status()["run_id"];

  Settings mended;
  mended.model = kModel;
  write(yamlOf(mended));
  ASSERT_TRUE(says("aggregator.log", "begins anew", 10));
  EXPECT_EQ(refusedEdit(), "");
  EXPECT_EQ(allot({"pause"}).status, 0);
  ChildProcess& worker = start("allot-worker", "worker", plain);
  ASSERT_TRUE(waitFor([&] { return workerState() == "idle"; }, 60));

  // One that has loaded the model takes up what is edited then, without loading it again.
  mended.budget = 16;
  write(yamlOf(mended));
  ASSERT_TRUE(says("worker.log", "another experiment now", 10));
  EXPECT_EQ(allot({"resume"}).status, 0);
  ASSERT_TRUE(waitFor([&] { return version() >= 2; }, 60));
  EXPECT_EQ(status()["run_id"], run);
  EXPECT_FALSE(worker.poll());
  const Output verified = allot({"verify"});
  EXPECT_EQ(verified.status, 0) << verified.err;

  // From here on it is another run, and the sentence says what it would cost.
  mended.budget = 8;
  write(yamlOf(mended));
  ASSERT_TRUE(waitFor([&] { return !refusedEdit().empty(); }, 10));
  EXPECT_THAT(refusedEdit(), AllOf(HasSubstr("cannot change from 16 to 8"), HasSubstr(" episodes"),
                                   HasSubstr("allot fork")));
}

TEST_F(Stay, AtTheEndTheyWaitAndGoOnWithTheRunOrANewerOne) {
  Settings few;
  few.updates = 2;
  write(yamlOf(few));
  ChildProcess& worker = startWorker("worker");
  ASSERT_TRUE(waitFor([&] { return !readFile(dir("worker.log")).empty(); }, 20));
  ChildProcess& aggregator = startAggregator("aggregator");
  ASSERT_TRUE(waitFor([&] { return stateNow() == "finished"; }, 60));
  ASSERT_TRUE(waitFor([&] { return fs::exists(dir("out/export.json")); }, 10));
  EXPECT_THAT(readFile(dir("out/report.html")), HasSubstr("\"state\":\"finished\""));
  json now = status();
  EXPECT_EQ(now["version"], 2);
  std::this_thread::sleep_for(seconds(3));  // beyond the lease
  EXPECT_FALSE(worker.poll());
  EXPECT_FALSE(aggregator.poll());
  now = status();
  EXPECT_TRUE(now["leader"].is_string());
  EXPECT_EQ(now["workers"].size(), 1u);
  // While nothing happens nothing is done.
  EXPECT_EQ(readFile(dir("aggregator.log")).find("waits"),
            readFile(dir("aggregator.log")).rfind("waits"));

  EXPECT_EQ(allot({"extend", "--updates", "2"}).status, 0);
  ASSERT_TRUE(waitFor([&] { return version() == 4 && stateNow() == "finished"; }, 60));
  ASSERT_TRUE(says("out/history.jsonl", "\"version\":\"4\"", 10));
  EXPECT_EQ(allot({"verify"}).status, 0);

  // Another run of that name: the worker, model loaded, works for it.
  Settings next = few;
  next.budget = 16;
  next.updates = 1;
  write(yamlOf(next));
  const std::string newer = makeUlid(4'000'000'000'000, 1, 2);
  startAggregator("newer", {"--run", newer}).waitFor(seconds(60));
  now = status();
  EXPECT_EQ(now["run_id"], newer);
  EXPECT_EQ(now["state"], "finished");
  EXPECT_FALSE(worker.poll());
  EXPECT_THAT(readFile(dir("worker.log")), HasSubstr("works on run " + newer));

  // One that asks other questions needs another process.
  next.context = 160;
  write(yamlOf(next));
  startAggregator("other", {"--run", makeUlid(4'000'000'000'001, 1, 2)});
  EXPECT_EQ(worker.waitFor(seconds(30)).value_or(-1), static_cast<int>(ErrorCode::kFenced));
  EXPECT_THAT(readFile(dir("worker.log")), HasSubstr("another spec.task"));
}

// A thousand that have nothing to do are to cost the store nothing. Counted by Redis, commands of
// scripts left out, while nobody else asks it.
TEST_F(Stay, AWorkerWithNothingToDoAsksTheStoreLessThanOnceInTwoSeconds) {
  ChildProcess& aggregator = startAggregator("aggregator");
  startWorker("worker");
  ASSERT_TRUE(waitFor([&] { return version() >= 1; }, 60));
  constexpr int kSeconds = 24;  // longer than it waits for news at most
  for (const char* how : {"pause", "stop"}) {
    EXPECT_EQ(allot({how}).status, 0);
    ASSERT_TRUE(waitFor([&] { return workerState() == "idle"; }, 30));
    if (aggregator.pid() > 0 && !aggregator.poll()) aggregator.signal(SIGTERM);
    (void)aggregator.waitFor(seconds(20));
    const std::string socket = server_.url().substr(std::string("unix:").size());
    const auto heard = valueOf(
        capture({"timeout", {std::to_string(kSeconds), "redis-cli", "-s", socket, "monitor"}, {}}));
    std::istringstream lines(heard.out);
    int requests = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" lua]") == std::string::npos && line.find('[') != std::string::npos)
        ++requests;
    }
    EXPECT_GT(requests, 0) << heard.err;
    EXPECT_LT(requests, kSeconds / 2) << how << "\n" << heard.out;
    std::printf("%s: %.2f requests a second\n", how, static_cast<double>(requests) / kSeconds);
  }
  // And yet it hears at once that there is work.
  const uint64_t last = version();
  startAggregator("next");
  EXPECT_EQ(allot({"resume"}).status, 0);
  EXPECT_TRUE(waitFor([&] { return version() > last; }, 20));
}

TEST_F(Stay, WithoutARunIdEveryAggregatorEndsOnTheSameRun) {
  startWorker("worker");
  ChildProcess& one = startAggregator("one");
  ChildProcess& two = startAggregator("two");
  ASSERT_TRUE(waitFor([&] { return version() >= 2; }, 60));
  const json run = status()["run_id"];
  EXPECT_EQ(allot({"status", "--run", run.get<std::string>()}).status, 0);
  for (const char* log : {"one.log", "two.log"}) {
    EXPECT_THAT(readFile(dir(log)), HasSubstr("run " + run.get<std::string>() + " of stay"));
  }
  for (ChildProcess* aggregator : {&one, &two}) {
    aggregator->signal(SIGKILL);
    aggregator->waitFor(seconds(5));
  }
  const uint64_t before = version();
  startAggregator("three");
  ASSERT_TRUE(waitFor([&] { return version() >= before + 2; }, 30));
  EXPECT_EQ(status()["run_id"], run);
  EXPECT_THAT(readFile(dir("three.log")), HasSubstr("continues after update"));
  EXPECT_EQ(allot({"verify"}).status, 0);
}

}  // namespace
}  // namespace allot
