// `allot run` from outside: real binaries, a real redis-server, the real model.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "aggregator/page/publication_text.h"
#include "tests/e2e/programs.h"
#include "tests/store/fake_server.h"

namespace allot {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class AllotRun : public FolderTest {
 protected:
  // Few and short prompts: what is tested here is not how well is learned.
  static std::vector<std::string> small() {
    return {
        "--set", "spec.task.contextTokens=192",     "--set",       "spec.task.trainQuestions=32",
        "--set", "spec.task.heldOutQuestions=40",   "--set",       "spec.update.maxUpdates=6",
        "--set", "spec.update.episodesPerUpdate=4", "--set",       "spec.evaluation.everyUpdates=3",
        "--set", "spec.evaluation.budgets=[8, 16]", "--kv-memory", "512"};
  }

  static Command command(std::vector<std::string> arguments,
                         const std::vector<std::string>& more = {}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {kAllot, arguments, {}};
  }
  Output run(const std::string& name, const std::vector<std::string>& more,
             const std::vector<std::string>& settings = small()) {
    auto arguments = std::vector<std::string>{"run", kRecall, "--dir", dir(name)};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return valueOf(capture(command(arguments, more)));
  }
  json summary(const std::string& name) {
    return json::parse(readFile(dir(name) + "/summary.json"), nullptr, false);
  }
  // ticket -> what the episode was and gave
  std::map<uint64_t, json> episodes(const std::string& name) {
    std::map<uint64_t, json> byTicket;
    std::ifstream file(dir(name) + "/history.jsonl");
    std::string line;
    while (std::getline(file, line)) {
      const json record = json::parse(line);
      for (const json& result : record["results"]) {
        byTicket[std::stoull(result["ticket"].get<std::string>())] = {
            {"schedule", result["schedule"]},
            {"scores", result["scores"]},
            {"reward", result["reward"]},
            {"version", result["policy_version"]}};
      }
    }
    return byTicket;
  }
  std::vector<std::string> policies(const std::string& name) {
    std::vector<std::string> digests;
    std::ifstream file(dir(name) + "/history.jsonl");
    std::string line;
    while (std::getline(file, line)) digests.push_back(json::parse(line)["policy_sha256"]);
    return digests;
  }
  // Processes whose command line names this test's folder and program.
  std::vector<pid_t> processes(const std::string& program) const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::string line = readFile(entry.path() / "cmdline");
      std::replace(line.begin(), line.end(), '\0', ' ');
      if (line.find(folder_) != std::string::npos &&
          line.substr(0, line.find(' ')).ends_with(program)) {
        found.push_back(std::stoi(name));
      }
    }
    return found;
  }
  // Updates that Redis's append-only file has seen committed: no client of ours in between.
  size_t updatesOnDisk(const std::string& name) {
    size_t count = 0;
    if (!fs::exists(dir(name) + "/appendonlydir")) return 0;
    for (const auto& file : fs::directory_iterator(dir(name) + "/appendonlydir")) {
      const std::string text = readFile(file.path());
      for (size_t at = text.find(":history"); at != std::string::npos;
           at = text.find(":history", at + 1)) {
        ++count;
      }
    }
    return count;
  }
};

TEST_F(AllotRun, LeavesEverythingThatIsPromised) {
  const Output output = run("a", {"--workers", "2"});
  ASSERT_EQ(output.status, 0) << output.err;
  // Talk goes to stderr: stdout has the result alone.
  EXPECT_THAT(output.err, HasSubstr("page:   http://127.0.0.1:"));
  EXPECT_THAT(output.err, HasSubstr("report.html"));
  EXPECT_EQ(output.out.find("dense attention"), 1u) << output.out;
  EXPECT_THAT(output.out, HasSubstr("dense attention: accuracy"));
  EXPECT_THAT(output.out, HasSubstr("learned (95 % interval)"));
  const json s = summary("a");
  ASSERT_TRUE(s.is_object());
  EXPECT_EQ(s["experiment"], "recall-layer-budget");
  EXPECT_EQ(s["updates"], 6);
  EXPECT_EQ(s["episodes"], 24);
  EXPECT_GT(s["wall_seconds"].get<double>(), 0);
  EXPECT_GT(s["episodes_per_second"].get<double>(), 0);
  EXPECT_EQ(s["learned_schedule"].size(), 8u);
  std::map<std::string, int> schedules;
  for (const json& row : s["evaluations"]) {
    ++schedules[row["schedule"]];
    EXPECT_EQ(row["n"], 40);
    EXPECT_LE(row["ci95"][0].get<double>(), row["accuracy"].get<double>());
    EXPECT_GE(row["ci95"][1].get<double>(), row["accuracy"].get<double>());
  }
  EXPECT_EQ(schedules, (std::map<std::string, int>{{"dense", 1}, {"uniform", 2}, {"learned", 2}}));
  for (const char* name :
       {"report.html", "curve.csv", "curve.svg", "policy.json", "history.jsonl"}) {
    EXPECT_GT(fs::file_size(dir("a") + "/" + name), 100u) << name;
  }
  EXPECT_EQ(fs::read_symlink(folder_ + "/latest"), "a");
  EXPECT_EQ(episodes("a").size(), 24u);
  EXPECT_TRUE(processes("redis-server").empty());
  EXPECT_TRUE(processes("allot-worker").empty());

  const Output again = run("a", {});
  EXPECT_EQ(again.status, 64);
  EXPECT_THAT(again.err, HasSubstr("holds a run already: add --resume"));
}

// The experiment of several total budgets, small. What is published is in every place that says it,
// and every update computes to the same bits again.
TEST_F(AllotRun, LearnsAFrontier) {
  const std::string file =
      std::string(ALLOT_SOURCE_DIR) + "/experiments/recall-frontier/experiment.yaml";
  auto arguments = std::vector<std::string>{"run", file, "--dir", dir("f"), "--workers", "2"};
  for (const char* setting :
       {"spec.task.contextTokens=128", "spec.task.heldOutQuestions=40",
        "spec.task.trainQuestions=48", "spec.rollout.questionsPerEpisode=4",
        "spec.update.maxUpdates=4", "spec.update.episodesPerUpdate=20",
        "spec.evaluation.everyUpdates=0", "spec.evaluation.methods=[s2anta-sys]"}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const auto output = valueOf(capture(command(arguments, {})));
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("learned at"));
  const json s = summary("f");
  ASSERT_TRUE(s.is_object());
  std::set<uint64_t> budgets;
  for (const json& row : s["frontier"]) {
    budgets.insert(row["total_budget"].get<uint64_t>());
    uint64_t sum = 0;
    for (const json& draws : row["learned_schedule"]) sum += draws.get<uint64_t>();
    EXPECT_EQ(sum, row["total_budget"]);
    EXPECT_TRUE(row["beats_uniform"].is_boolean());
  }
  EXPECT_EQ(budgets, (std::set<uint64_t>{8, 16, 32, 64, 128}));
  EXPECT_EQ(json::parse(readFile(dir("f") + "/policy.json"))["frontier"], s["frontier"]);
  // A schedule that nothing has confirmed is called a guess wherever it is shown.
  const std::string known = publicationsText(s["frontier"], "");
  EXPECT_THAT(known, HasSubstr(": measured, the best guess, not confirmed to be better"));
  EXPECT_THAT(output.out, HasSubstr("measured: the best guess, not confirmed to be better"));
  for (const auto& [verb, before] :
       {std::pair{"status", "\nlearned: "}, {"top", "\nlearned, version 4, "}}) {
    const auto shown = valueOf(capture(command({verb, dir("f")}, {})));
    EXPECT_THAT(shown.out, HasSubstr(before + known + "\n")) << verb;
  }
  EXPECT_EQ(episodes("f").size(), 80u);
  const auto verified = valueOf(capture(command({"verify", dir("f")}, {})));
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("4 updates"));
}

// The experiment whose budgets are shares of dense attention's bytes, small: no cell reads more
// than its budget, and where a budget buys no uniform schedule the measured one is what is
// published.
TEST_F(AllotRun, LearnsWithinAPrice) {
  const std::string file =
      std::string(ALLOT_SOURCE_DIR) + "/experiments/recall-priced/experiment.yaml";
  auto arguments = std::vector<std::string>{"run", file, "--dir", dir("p"), "--workers", "2"};
  for (const char* setting :
       {"spec.task.heldOutQuestions=16", "spec.task.trainQuestions=48",
        "spec.policy.measureQuestions=8", "spec.rollout.questionsPerEpisode=4",
        "spec.update.maxUpdates=3", "spec.update.episodesPerUpdate=16",
        "spec.evaluation.everyUpdates=0", "spec.policy.totalBudgets=[10 %, 15 %, 30 %]"}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const auto output = valueOf(capture(command(arguments, {})));
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("learned at"));
  EXPECT_THAT(output.out, HasSubstr("30 %"));
  EXPECT_THAT(output.out, HasSubstr("uniform (26.56 %)"));
  const json s = summary("p");
  ASSERT_TRUE(s.is_object());
  EXPECT_EQ(s["price"], "bytes");
  std::map<uint64_t, std::string> rivals;
  for (const json& row : s["frontier"]) {
    rivals[row["total_budget"].get<uint64_t>()] = row["rival"];
    for (const char* key : {"price_share", "rival_price_share"}) {
      EXPECT_LE(row[key].get<double>(), row["total_budget"].get<double>() / 100);
    }
  }
  EXPECT_EQ(rivals,
            (std::map<uint64_t, std::string>{{10, "measured"}, {15, "uniform"}, {30, "uniform"}}));
  std::set<std::string> cells;
  for (const json& cell : s["evaluations"]) {
    const auto budget = cell["total_budget"].get<uint64_t>();
    cells.insert(cell["schedule"].get<std::string>() + std::to_string(budget));
    // Answers are shorter than the room for them, and prompts about as long as the context.
    EXPECT_LE(cell["kv_bytes_share"].get<double>(), budget == 0 ? 1 : budget / 100.0 + 0.02);
  }
  EXPECT_EQ(cells,
            (std::set<std::string>{"dense0", "uniform15", "uniform30", "measured10", "measured15",
                                   "measured30", "learned10", "learned15", "learned30"}));
  const json policy = json::parse(readFile(dir("p") + "/policy.json"));
  EXPECT_EQ(policy["price"], "bytes");
  EXPECT_EQ(policy["frontier"], s["frontier"]);
  const auto verified = valueOf(capture(command({"verify", dir("p")}, {})));
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("3 updates"));
  // A fork keeps the prices, and refuses others.
  auto fork = arguments;
  fork[0] = "fork";
  fork[3] = dir("fork");
  fork.insert(fork.end(), {"--from", dir("p"), "--set", "spec.update.maxUpdates=1"});
  const auto forked = valueOf(capture(command(fork, {})));
  EXPECT_EQ(forked.status, 0) << forked.err;
  EXPECT_EQ(valueOf(capture(command({"verify", dir("fork")}, {}))).status, 0);
  fork[3] = dir("other");
  fork.insert(fork.end(), {"--set", "spec.attention.decode=s2anta-sys", "--set",
                           "spec.evaluation.methods=[dense, s2anta-sys]"});
  const auto refused = valueOf(capture(command(fork, {})));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("other prices"));
  const auto top = valueOf(capture(command({"top", dir("p")}, {})));
  EXPECT_THAT(top.out, HasSubstr("total budget 10 %"));
}

TEST_F(AllotRun, SynchronousRunsDoNotDependOnTheNumberOfWorkers) {
  // All but the clock.
  const auto evaluations = [&](const char* workers) {
    json rows = summary(workers)["evaluations"];
    for (json& row : rows) {
      row.erase("prefill_seconds");
      row.erase("prefill_selection_seconds");
    }
    return rows;
  };
  for (const char* workers : {"1", "2", "4"}) {
    const Output output = run(workers, {"--synchronous", "--workers", workers});
    ASSERT_EQ(output.status, 0) << output.err;
  }
  const auto one = episodes("1");
  ASSERT_EQ(one.size(), 24u);
  for (const auto& [ticket, episode] : one) {
    EXPECT_EQ(episode["version"].get<std::string>(), std::to_string(ticket / 4));  // lag zero
  }
  for (const char* workers : {"2", "4"}) {
    EXPECT_EQ(episodes(workers), one);
    EXPECT_EQ(policies(workers), policies("1"));
    EXPECT_EQ(evaluations(workers), evaluations("1"));
  }
}

TEST_F(AllotRun, GoesOnWhenProcessesAreKilled) {
  const auto settings = std::vector<std::string>{
      "--set", "spec.task.contextTokens=192",     "--set",       "spec.task.trainQuestions=32",
      "--set", "spec.task.heldOutQuestions=32",   "--set",       "spec.update.maxUpdates=40",
      "--set", "spec.update.episodesPerUpdate=4", "--set",       "spec.evaluation.everyUpdates=0",
      "--set", "spec.evaluation.budgets=[8]",     "--kv-memory", "512"};
  auto arguments = std::vector<std::string>{"run",       kRecall, "--dir",        dir("a"),
                                            "--workers", "2",     "--synchronous"};
  auto process = valueOf(ChildProcess::start(command(arguments, settings), folder_ + "/out.log"));
  size_t killed = 0;
  for (const char* victim : {"allot-worker", "allot-aggregator", "redis-server"}) {
    const size_t before = updatesOnDisk("a");
    ASSERT_TRUE(waitFor([&] { return updatesOnDisk("a") > before + 2 || process.poll(); }, 120));
    const auto pids = processes(victim);
    if (pids.empty()) continue;
    kill(pids.front(), SIGKILL);
    ++killed;
  }
  EXPECT_EQ(killed, 3u) << "the run was over too soon to be disturbed";
  const auto status = valueOf(process.waitFor(std::chrono::seconds(200)));
  EXPECT_EQ(status, 0) << readFile(folder_ + "/out.log");
  EXPECT_EQ(summary("a")["updates"], 40);

  const Output calm = run("b", {"--synchronous", "--workers", "1"}, settings);
  ASSERT_EQ(calm.status, 0);
  EXPECT_EQ(episodes("a"), episodes("b"));
  EXPECT_EQ(policies("a"), policies("b"));
}

TEST_F(AllotRun, StopsOnCtrlCAndResumes) {
  const auto settings = small();
  const auto with = [&](std::vector<std::string> more) {
    auto all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  auto process = valueOf(ChildProcess::start(
      command({"run", kRecall, "--dir", dir("a"), "--workers", "1", "--synchronous"},
              with({"--set", "spec.update.maxUpdates=30"})),
      folder_ + "/out.log"));
  ASSERT_TRUE(waitFor([&] { return updatesOnDisk("a") > 3 || process.poll(); }, 120));
  process.signal(SIGINT);
  EXPECT_EQ(valueOf(process.waitFor(std::chrono::seconds(60))), 130);
  const std::string said = readFile(folder_ + "/out.log");
  EXPECT_THAT(said, HasSubstr("stopped after update"));
  EXPECT_THAT(said, HasSubstr("--resume"));
  EXPECT_TRUE(processes("redis-server").empty());

  const Output other = run("a", with({"--resume", "--set", "spec.update.maxUpdates=31"}));
  EXPECT_EQ(other.status, 64) << other.out;  // not the experiment that was begun

  const Output resumed =
      run("a", {"--resume", "--workers", "2", "--set", "spec.update.maxUpdates=30"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(summary("a")["updates"], 30);
  const Output whole =
      run("b", {"--synchronous", "--workers", "2", "--set", "spec.update.maxUpdates=30"});
  ASSERT_EQ(whole.status, 0);
  EXPECT_EQ(policies("a"), policies("b"));  // as if it had never been stopped
}

// Nothing is left behind: the run was never there.
TEST_F(AllotRun, SaysThatMemoryIsTooSmallAndBeginsWithMore) {
  const auto with = [](const std::string& mib) {
    auto settings = small();
    settings.back() = mib;
    settings.insert(settings.end(), {"--set", "spec.model.kvDtype=float32"});
    return settings;
  };
  const Output cramped = run("a", {"--workers", "1"}, with("1"));
  EXPECT_EQ(cramped.status, 64);
  EXPECT_THAT(cramped.err, HasSubstr("raise --kv-memory to at least"));
  EXPECT_FALSE(fs::exists(dir("a")));
  EXPECT_FALSE(fs::is_symlink(folder_ + "/latest"));
  const Output roomy = run("a", {"--workers", "1"}, with("256"));
  EXPECT_EQ(roomy.status, 0) << roomy.err;
  EXPECT_EQ(summary("a")["updates"], 6);
}

TEST_F(AllotRun, TheAggregatorIsSmall) {
  auto arguments = std::vector<std::string>{"run", kRecall, "--dir", dir("a"), "--workers", "1"};
  auto process = valueOf(ChildProcess::start(command(arguments, small()), folder_ + "/out.log"));
  long peak_kib = 0;
  while (!process.poll()) {
    for (pid_t pid : processes("allot-aggregator")) {
      const std::string status = readFile("/proc/" + std::to_string(pid) + "/status");
      const size_t at = status.find("VmHWM:");
      if (at != std::string::npos) peak_kib = std::max(peak_kib, std::stol(status.substr(at + 6)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GT(peak_kib, 0);
  EXPECT_LT(peak_kib, 256 << 10);
  const auto libraries =
      valueOf(capture({"ldd", {std::string(ALLOT_BIN_DIR) + "/allot-aggregator"}, {}}));
  EXPECT_EQ(libraries.out.find("torch"), std::string::npos);
}

// A browser on the page of a run under way. The workers are held still meanwhile, so that the page
// and the script that checks it read the same numbers.
TEST_F(AllotRun, ThePageShowsTheRun) {
  auto settings = small();
  settings.insert(settings.end(), {"--set", "spec.update.maxUpdates=4000"});
  auto arguments = std::vector<std::string>{"run", kRecall, "--dir", dir("a"), "--workers", "1"};
  auto process = valueOf(ChildProcess::start(command(arguments, settings), folder_ + "/out.log"));
  ASSERT_TRUE(waitFor([&] { return updatesOnDisk("a") > 8 || process.poll(); }, 120));
  for (pid_t pid : processes("allot-worker")) kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const std::string said = readFile(folder_ + "/out.log");
  const size_t at = said.find("http://127.0.0.1:");
  ASSERT_NE(at, std::string::npos);
  const std::string url = said.substr(at, said.find('\n', at) - at);
  const auto checked = valueOf(
      capture({ALLOT_PYTHON, {kSource + "/tests/e2e/page_test.py", url}, {{"HOME", folder_}}}));
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  for (pid_t pid : processes("allot-worker")) kill(pid, SIGCONT);
  process.signal(SIGINT);
  EXPECT_EQ(process.waitFor(std::chrono::seconds(60)).value_or(-1), 130);
  const json s = summary("a");
  EXPECT_EQ(s["state"], "stopped");
}

// Each wrong thing gives one sentence with the place and the mend, exit code 64, and leaves
// nothing.
class BadInput : public AllotRun {
 protected:
  // A copy of the model folder that a test may spoil.
  std::string modelCopy() {
    const std::string copy = folder_ + "/model";
    fs::create_directory(copy);
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      fs::copy(kSource + "/experiments/models/recall-7m/" + name, copy);
    }
    return copy;
  }
  void expectRefused(const std::vector<std::string>& arguments, const std::string& sentence) {
    std::vector<std::string> all{"run"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--dir", dir("x")});
    const auto output = valueOf(capture({kAllot, all, environment_}));
    EXPECT_EQ(output.status, 64) << output.err;
    EXPECT_THAT(output.err, HasSubstr(sentence));
    // A line for each mistake.
    EXPECT_THAT(output.err, MatchesRegex("(allot: [^\n]+\n)+"));
    EXPECT_FALSE(fs::exists(dir("x")));
    EXPECT_FALSE(fs::is_symlink(folder_ + "/latest"));
  }
  std::map<std::string, std::string> environment_;
};

TEST_F(BadInput, Experiments) {
  expectRefused({folder_ + "/none.yaml"}, "none.yaml: cannot be read");
  write(folder_ + "/broken.yaml", "spec: [1, 2\nfoo");
  expectRefused({folder_ + "/broken.yaml"}, "broken.yaml:");
  expectRefused({kRecall, "--set", "spec.polcy.totalBudget=3"}, "did you mean");
  expectRefused({kRecall, "--set", "spec.policy.totalBudget=eight"}, "spec.policy.totalBudget");
  expectRefused({kRecall, "--set", "spec.policy.totalBudget=0"}, "out of range 1..1000000");
  expectRefused({kRecall, "--set", "spec.policy.minPerLayer=2"}, "minPerLayer");
  expectRefused({kRecall, "--set", "spec.task.contextTokens=16"}, "spec.task.contextTokens");
  expectRefused({kRecall, "--set", "spec.task.contextTokens=9000"}, "8192 positions");
  expectRefused({kRecall, "--set", "spec.model.path=no/such/folder"}, "spec.model.path");
  expectRefused({folder_}, "is a folder; name the experiment file in it");
  expectRefused({kRecall, "--set", "spec.model.chatTemplate=qwen2"}, "has no effect");
  expectRefused({kRecall, "--set", "spec.policy.minPerLayer=1"}, "nothing is left to learn");
}

TEST_F(BadInput, Models) {
  const std::string model = modelCopy();
  const auto use = std::vector<std::string>{kRecall, "--model", model};
  const std::string config = readFile(model + "/config.json");
  const std::string weights = readFile(model + "/model.safetensors");
  const std::string tokenizer = readFile(model + "/tokenizer.json");

  fs::remove(model + "/config.json");
  expectRefused(use, "spec.model.path: ");
  json other = json::parse(config);
  other["architectures"] = {"GPT2LMHeadModel"};
  write(model + "/config.json", other.dump());
  expectRefused(use, "supported: LlamaForCausalLM");
  write(model + "/config.json", config);

  fs::remove(model + "/model.safetensors");
  expectRefused(use, "model.safetensors");
  write(model + "/model.safetensors", weights.substr(0, weights.size() / 2));
  expectRefused(use, "model.safetensors");
  write(model + "/model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + weights);
  expectRefused(use, "model.safetensors");
  write(model + "/model.safetensors", weights);

  fs::remove(model + "/tokenizer.json");
  expectRefused(use, "tokenizer.json");
  json merges = json::parse(tokenizer);
  merges["model"].erase("merges");
  write(model + "/tokenizer.json", merges.dump());
  expectRefused(use, "merges");
}

TEST_F(BadInput, Surroundings) {
  expectRefused({kRecall, "--redis-server", "no-such-redis"}, "install redis-server");
  int number = 0;
  const int fd = test::boundSocket(&number);
  ASSERT_EQ(listen(fd, 1), 0);
  const std::string port = std::to_string(number);
  expectRefused({kRecall, "--port", port}, "port " + port + " on 127.0.0.1 is taken");
  close(fd);

  // A file stands where the folder should be: not even root can write there.
  write(folder_ + "/file", "x");
  const auto output = valueOf(capture(command({"run", kRecall, "--dir", folder_ + "/file/x"})));
  EXPECT_EQ(output.status, 64);
  EXPECT_THAT(output.err, HasSubstr("cannot write to " + folder_ + "/file/x"));
  expectRefused({kRecall, "--resume"}, "holds no run to resume");
}

// Before weights are looked for: this model has none.
TEST_F(BadInput, ProgramsOfAModelWithoutLeaveOrSandbox) {
  const std::string model = modelCopy();
  fs::remove(model + "/model.safetensors");
  std::vector<std::string> run = {
      kRecall, "--model", model, "--set",
      "spec.task={suite: humaneval, path: " + kSource + "/tests/worker/humaneval/problems.jsonl}"};
  expectRefused(run, "--allow-code-execution (of `allot run` or allot-worker) lets workers do so");
  run.emplace_back("--allow-code-execution");
  environment_["PATH"] = folder_;
  expectRefused(run, "there is no bwrap in PATH (Debian package bubblewrap)");
}

TEST_F(BadInput, CommandLines) {
  for (const auto& arguments : {std::vector<std::string>{"rnu"}, {"run"}, {"run", "x", "--nope"}}) {
    EXPECT_EQ(valueOf(capture(command(arguments))).status, 64);
  }
  const auto help = valueOf(capture(command({"run", "--help"})));
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("--synchronous"));
}

// The main claim, at full size: seed 1, the spec's own task mix, evaluated before and after.
TEST_F(AllotRun, LearnsWhereToSpendTheBudget) {
  const Output output =
      run("a", {},
          {"--set", "spec.seed=1", "--set", "spec.evaluation.everyUpdates=0", "--set",
           "spec.evaluation.budgets=[8, 16]", "--set", "spec.evaluation.methods=[s2anta-sys]"});
  ASSERT_EQ(output.status, 0) << output.err;
  std::map<std::pair<std::string, int>, json> cells;
  const json s = summary("a");
  for (const json& row : s["evaluations"]) {
    cells[{row["schedule"], row["total_budget"]}] = row;
  }
  const auto learned = cells[{"learned", 8}], uniform = cells[{"uniform", 8}];
  const auto twice = cells[{"uniform", 16}];
  ASSERT_TRUE(learned.is_object() && uniform.is_object() && twice.is_object());
  EXPECT_GE(learned["accuracy"].get<double>(), uniform["accuracy"].get<double>() + 0.10);
  EXPECT_GT(learned["ci95"][0].get<double>(), uniform["ci95"][1].get<double>());
  EXPECT_GE(learned["ci95"][1].get<double>(), twice["accuracy"].get<double>());
}

}  // namespace
}  // namespace allot
