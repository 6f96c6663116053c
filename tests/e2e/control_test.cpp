// Run control from outside: the commands on a run that goes on, stops, is extended, exported,
// imported, forked. Real binaries, a real redis-server, the real model.
#include <signal.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/e2e/programs.h"
#include "tests/store/redis_server.h"

namespace allot {
namespace {

size_t lineCount(const std::string& path) {
  const std::string text = readFile(path);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class RunControl : public FolderTest {
 protected:
  // Few and short prompts.
  static std::vector<std::string> small(const std::string& updates) {
    return {"--set",       "spec.task.contextTokens=192",
            "--set",       "spec.task.trainQuestions=32",
            "--set",       "spec.task.heldOutQuestions=40",
            "--set",       "spec.update.maxUpdates=" + updates,
            "--set",       "spec.update.episodesPerUpdate=4",
            "--set",       "spec.evaluation.everyUpdates=3",
            "--set",       "spec.evaluation.budgets=[8, 16]",
            "--kv-memory", "256",
            "--workers",   "2"};
  }
  Output allot(std::vector<std::string> arguments) const {
    // From a folder that has no runs/latest.
    return valueOf(capture({"/usr/bin/env",
                            [&] {
                              std::vector<std::string> all{"-C", folder_, kAllot};
                              all.insert(all.end(), arguments.begin(), arguments.end());
                              return all;
                            }(),
                            {}}));
  }
  // The command succeeds; what it says.
  std::string said(const std::vector<std::string>& arguments) const {
    const Output output = allot(arguments);
    EXPECT_EQ(output.status, 0) << arguments[0] << ": " << output.out << output.err;
    return output.out;
  }
  // The command is refused in one sentence, which is given back.
  std::string refused(const std::vector<std::string>& arguments, int status = 64) const {
    const Output output = allot(arguments);
    EXPECT_EQ(output.status, status) << arguments[0] << ": " << output.out << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    return output.err;
  }
  json statusOf(const std::string& name) const {
    const Output output = allot({"status", dir(name), "--json"});
    return output.status == 0 ? json::parse(output.out, nullptr, false) : json();
  }
  uint64_t version(const std::string& name) const {
    const json status = statusOf(name);
    return status.is_object() ? status.value("version", uint64_t{0}) : 0;
  }
  ChildProcess startRun(const std::string& name, const std::string& updates) const {
    std::vector<std::string> arguments{"run", kRecall, "--dir", dir(name)};
    const auto settings = small(updates);
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return valueOf(ChildProcess::start({kAllot, arguments, {}}, dir(name + ".log")));
  }
  // No redis-server or allot process is left that names this test's folder.
  bool nobodyIsLeft() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::string line = readFile(entry.path() / "cmdline");
      if (line.find(folder_) != std::string::npos &&
          line.find("control_test") == std::string::npos) {
        return false;
      }
    }
    return true;
  }
};

TEST_F(RunControl, ARunIsWatchedSteeredStoppedExtendedCopiedAndForked) {
  // --- while it goes on ---
  ChildProcess process = startRun("a", "4000");
  ASSERT_TRUE(waitFor([&] { return version("a") >= 3 || process.poll(); }, 120));
  json status = statusOf("a");
  EXPECT_THAT(status["state"], AnyOf("running", "evaluating"));
  EXPECT_EQ(status["not_progressing"], "");
  EXPECT_EQ(status["max_updates"], 4000);
  EXPECT_EQ(status["workers"].size(), 2u);
  EXPECT_GE(status["episodes"].get<int>(), 12);
  EXPECT_EQ(status["first"]["updates"], status["last"]["updates"]);
  EXPECT_THAT(said({"status", dir("a")}),
              AllOf(HasSubstr("reward:"), HasSubstr("workers: 2"),
                    HasSubstr("effective sample size"), HasSubstr("page:    http://127.0.0.1:")));
  EXPECT_THAT(said({"top", dir("a"), "--budget", "8"}), HasSubstr("total budget 8"));
  EXPECT_THAT(refused({"top", dir("a"), "--budget", "9"}), HasSubstr("total budget of 9"));
  EXPECT_THAT(said({"verify", dir("a")}), HasSubstr("every policy equal bit for bit"));

  EXPECT_THAT(said({"pause", dir("a")}), HasSubstr("paused: workers finish"));
  ASSERT_TRUE(waitFor(
      [&] {
        status = statusOf("a");
        return status.is_object() &&
               std::all_of(status["workers"].begin(), status["workers"].end(),
                           [](const json& worker) { return worker["state"] == "idle"; });
      },
      30));
  EXPECT_EQ(status["state"], "paused");
  EXPECT_EQ(status["not_progressing"],
            "it is paused: allot resume " + fs::canonical(dir("a")).string());
  // The results that were in hand may still make updates.
  uint64_t paused_at = 0;
  ASSERT_TRUE(waitFor(
      [&] {
        const uint64_t before = std::exchange(paused_at, version("a"));
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return before == paused_at;
      },
      30));
  EXPECT_THAT(said({"set", dir("a"), "spec.update.learningRate=0.02"}),
              HasSubstr("spec.update.learningRate: 0.05 -> 0.02"));
  EXPECT_THAT(said({"set", dir("a"), "spec.update.learningRate=0.02"}),
              HasSubstr("nothing changes"));
  EXPECT_THAT(refused({"set", dir("a"), "spec.policy.totalBudget=16"}), HasSubstr("allot fork"));
  EXPECT_THAT(refused({"set", dir("a")}), HasSubstr("write spec.key=value"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(version("a"), paused_at);
  EXPECT_THAT(said({"resume", dir("a")}), HasSubstr("running again (was paused)"));
  EXPECT_THAT(said({"resume", dir("a")}), HasSubstr("running already"));
  ASSERT_TRUE(waitFor([&] { return version("a") > paused_at + 1; }, 60));

  EXPECT_THAT(said({"stop", dir("a")}), HasSubstr("allot run --resume --dir " + dir("a")));
  EXPECT_EQ(valueOf(process.waitFor(std::chrono::seconds(60))), 0);
  EXPECT_THAT(readFile(dir("a.log")), HasSubstr("allot run --resume --dir " + dir("a")));

  // --- stopped ---
  status = statusOf("a");
  EXPECT_EQ(status["state"], "stopped");
  EXPECT_EQ(status["not_progressing"], "it was stopped: allot run --resume --dir " + dir("a"));
  EXPECT_THAT(refused({"pause", dir("a")}), HasSubstr("is stopped"));
  EXPECT_THAT(said({"stop", dir("a")}), HasSubstr("stopped already"));
  const uint64_t most = status["version"].get<uint64_t>() + 3;
  EXPECT_THAT(said({"set", dir("a"), "spec.update.maxUpdates=" + std::to_string(most)}),
              HasSubstr("4000 -> " + std::to_string(most)));
  EXPECT_THAT(said({"resume", dir("a") + "/"}),
              AllOf(HasSubstr("was stopped"), HasSubstr("allot run --resume --dir " + dir("a"))));
  EXPECT_EQ(statusOf("a")["state"], "interrupted");
  EXPECT_THAT(said({"stop", dir("a")}), HasSubstr("nobody was at work"));
  // The relative name from elsewhere, and a slash at the end; the file is the run's own.
  EXPECT_THAT(said({"run", "--resume", "--dir", "a/", "--kv-memory", "256", "--workers", "2"}),
              HasSubstr(std::to_string(most) + " updates"));

  // --- finished ---
  status = statusOf("a");
  EXPECT_EQ(status["state"], "finished");
  EXPECT_EQ(status["version"], most);
  EXPECT_THAT(refused({"resume", dir("a")}), HasSubstr("allot extend"));
  EXPECT_THAT(refused({"pause", dir("a")}), HasSubstr("finished"));
  EXPECT_THAT(refused({"stop", dir("a")}), HasSubstr("finished"));
  EXPECT_THAT(allot({"run", "--resume", "--dir", dir("a")}).err,
              HasSubstr("finished: allot extend --updates N"));
  EXPECT_THAT(said({"extend", dir("a"), "--updates", "2"}),
              AllOf(HasSubstr("it goes on to " + std::to_string(most + 2)),
                    HasSubstr("allot run --resume")));
  said({"run", "--resume", "--dir", dir("a"), "--kv-memory", "256"});
  EXPECT_EQ(version("a"), most + 2);
  // What was set in between is in the history, from there on.
  const auto history = readFile(dir("a/history.jsonl"));
  EXPECT_EQ(lineCount(dir("a/history.jsonl")), most + 2);
  EXPECT_THAT(history.substr(0, history.find('\n')), HasSubstr("\"learning_rate\":0.05,"));
  EXPECT_THAT(history.substr(history.rfind('\n', history.size() - 2)),
              HasSubstr("\"learning_rate\":0.02,"));

  // --- elsewhere ---
  // What verify says of the run itself, wherever it is: only an export's files are compared.
  const auto verifiedRun = [&](const std::vector<std::string>& where) {
    std::vector<std::string> words = {"verify"};
    words.insert(words.end(), where.begin(), where.end());
    std::istringstream text(said(words));
    std::string of_run;
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("files ") && !line.starts_with("report ")) of_run += line + "\n";
    }
    return of_run;
  };
  const std::string verified = verifiedRun({dir("a")});
  EXPECT_THAT(verified, HasSubstr("verified: " + std::to_string(most + 2) + " updates"));
  EXPECT_THAT(said({"export", dir("a"), "--out", "copy"}), HasSubstr("exported: "));
  EXPECT_EQ(verifiedRun({dir("copy")}), verified);
  EXPECT_EQ(said({"top", "copy"}), said({"top", dir("a")}));
  EXPECT_THAT(said({"status", "copy"}), HasSubstr("finished"));
  EXPECT_THAT(refused({"stop", "copy"}), HasSubstr("allot import"));
  EXPECT_EQ(lineCount(dir("copy/episodes.csv")), 4 * (most + 2) + 1);
  said({"import", "copy", "--dir", "b c'd"});  // a name that a shell would take apart
  EXPECT_EQ(verifiedRun({"b c'd"}), verified);
  EXPECT_EQ(said({"top", "b c'd"}), said({"top", dir("a")}));
  EXPECT_THAT(refused({"import", "copy", "--dir", dir("b c'd")}), HasSubstr("is not empty"));
  EXPECT_THAT(said({"extend", "b c'd", "--updates", "2"}),
              HasSubstr("'" + folder_ + "/b c'\\''d'"));
  EXPECT_THAT(refused({"run", "--resume", "--dir", "b c'd"}), HasSubstr("spec.model.path"));
  said({"run", "--resume", "--dir", "b c'd", "--kv-memory", "256", "--model", kModel});
  EXPECT_EQ(version("b c'd"), most + 4);
  EXPECT_THAT(said({"verify", "b c'd"}), HasSubstr(std::to_string(most + 4) + " updates"));
  EXPECT_EQ(verifiedRun({dir("a")}), verified);  // the original has stayed as it was

  // One digit in one reward.
  std::string forged = readFile(dir("copy/history.jsonl"));
  const size_t reward = forged.find("\"reward\":", forged.size() / 2) + 9;
  forged.replace(reward, forged.find(',', reward) - reward, "0.4375001");
  std::ofstream(dir("copy/history.jsonl")) << forged;
  EXPECT_THAT(refused({"verify", "copy"}, 65), HasSubstr("update "));
  EXPECT_THAT(refused({"import", "copy", "--dir", "c"}, 65), HasSubstr("update "));
  EXPECT_FALSE(fs::exists(dir("c")));

  // --- another run from it ---
  std::vector<std::string> fork{"fork", "--from", dir("a") + "@4", kRecall, "--dir", dir("f")};
  const auto settings = small("3");
  fork.insert(fork.end(), settings.begin(), settings.end());
  const Output forked = allot(fork);
  EXPECT_EQ(forked.status, 0) << forked.err;
  EXPECT_THAT(forked.err, AllOf(HasSubstr("at version 4"), HasSubstr("draws anew, as spec.rep")));
  EXPECT_THAT(said({"verify", dir("f")}), HasSubstr("verified: 3 updates"));
  const json origin = json::parse(readFile(dir("f/origin.json")));
  EXPECT_EQ(origin["run_id"], statusOf("a")["run_id"]);
  EXPECT_EQ(origin["version"], "4");
  EXPECT_THAT(readFile(dir("f/run.json")), HasSubstr("spec.repetition="));  // resumed, it keeps it
  fork[2] = dir("a") + "@4000";
  EXPECT_THAT(refused(fork), HasSubstr("has no version 4000"));
  EXPECT_TRUE(nobodyIsLeft());

  // --- in a server ---
  test::RedisServer server;
  EXPECT_THAT(refused({"status", "--redis", server.url()}), HasSubstr("there is no run"));
  said({"export", dir("a"), "--out", "again"});
  said({"import", "again", "--redis", server.url()});
  EXPECT_EQ(verifiedRun({"--redis", server.url()}), verified);
  EXPECT_EQ(verifiedRun({"--redis", server.url(), "--experiment", "recall-layer-budget"}),
            verified);
  EXPECT_THAT(said({"list", "--redis", server.url()}),
              AllOf(HasSubstr("recall-layer-budget"), HasSubstr(server.url())));
  EXPECT_THAT(refused({"verify", "--redis", server.url(), "--experiment", "other"}),
              HasSubstr("there are recall-layer-budget"));
  EXPECT_THAT(said({"extend", "--redis", server.url(), "--updates", "1"}),
              HasSubstr("no aggregator leads it"));
  EXPECT_THAT(said({"status", "--redis", server.url()}),
              HasSubstr("not progressing: no aggregator leads"));
  EXPECT_THAT(refused({"import", "again", "--redis", server.url()}), HasSubstr("run"));
}

// Of every evaluated answer the text, as `evaluation.answers` says, in the store and in exports.
TEST_F(RunControl, AnswersAreShownBesideWhatWasExpected) {
  const std::vector<std::string> settings = {"--set",       "spec.task.contextTokens=192",
                                             "--set",       "spec.task.trainQuestions=32",
                                             "--set",       "spec.task.heldOutQuestions=40",
                                             "--set",       "spec.update.maxUpdates=1",
                                             "--set",       "spec.update.episodesPerUpdate=2",
                                             "--set",       "spec.rollout.questionsPerEpisode=4",
                                             "--set",       "spec.evaluation.budgets=[8]",
                                             "--kv-memory", "256",
                                             "--workers",   "1"};
  std::vector<std::string> run = {"run", kRecall, "--dir", dir("a")};
  run.insert(run.end(), settings.begin(), settings.end());
  said(run);
  // Every wrong answer of the export, and none that is right.
  uint32_t wrong = 0;
  std::string shown;
  std::istringstream lines(readFile(dir("a") + "/evaluations.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json evaluation = json::parse(line);
    std::map<uint32_t, json> answers;
    for (const json& answer : evaluation.value("/answers/answers"_json_pointer, json::array())) {
      answers[answer["question"].get<uint32_t>()] = answer;
    }
    for (const json& score : evaluation["scores"]) {
      const auto question = score["question"].get<uint32_t>();
      EXPECT_EQ(answers.contains(question), score["score"] < 1.0);
      if (!answers.contains(question) || evaluation["unit"]["schedule_name"] != "uniform") continue;
      if (++wrong > 2) continue;
      const json view = json::parse(said(
          {"show", "question", std::to_string(question), dir("a"), "--budget", "8", "--json"}));
      EXPECT_EQ(view["expected"], answers[question]["expected"]);
      const json* uniform = nullptr;
      for (const json& cell : view["evaluations"]) {
        if (cell["schedule"] == "uniform") uniform = &cell;
      }
      ASSERT_NE(uniform, nullptr) << view;
      EXPECT_EQ((*uniform)["answer"]["text"], answers[question]["text"]);
      EXPECT_NE((*uniform)["answer"]["graders"][0]["taken"], view["expected"][0]);
      shown = said({"show", "question", std::to_string(question), dir("a")});
      EXPECT_THAT(shown, HasSubstr("Answer:\n"));
      EXPECT_THAT(shown, HasSubstr("expected:\n  | "));
      EXPECT_THAT(shown, HasSubstr("exact: 0.000, for it"));
    }
  }
  EXPECT_GT(wrong, 0u);
  // An export, and what is made of it, shows the same.
  said({"export", dir("a"), "--out", dir("files")});
  said({"import", dir("files"), "--dir", dir("b")});
  const size_t at = shown.find("question ") + 9;
  const std::string question = shown.substr(at, shown.find(' ', at) - at);
  for (const char* other : {"files", "b"}) {
    EXPECT_EQ(said({"show", "question", question, dir(other)}), shown) << other;
  }
  EXPECT_THAT(refused({"show", "question", "40", dir("a")}),
              HasSubstr("question 40 is not there: the run's held-out questions are 0 to 39"));
  EXPECT_THAT(refused({"show", "question", "0", dir("a"), "--version", "7"}),
              HasSubstr("has not been measured at that version"));
  EXPECT_THAT(said({"show", "--help"}), HasSubstr("allot show question 17"));
  EXPECT_TRUE(nobodyIsLeft());
}

// The processes of an `allot run` that is killed end by themselves; its folder can be used at once.
TEST_F(RunControl, AKilledRunIsReadAndGoesOn) {
  {
    ChildProcess process = startRun("a", "4000");
    ASSERT_TRUE(waitFor([&] { return version("a") >= 2 || process.poll(); }, 120));
    process.signal(SIGKILL);
    process.waitFor(std::chrono::seconds(10));
  }
  const json status = statusOf("a");
  ASSERT_TRUE(status.is_object());
  EXPECT_EQ(status["state"], "interrupted");
  const auto done = status["version"].get<uint64_t>();
  EXPECT_GE(done, 2u);
  // Two commands at once wait for each other.
  std::vector<ChildProcess> both;
  for (const char* name : {"one", "two"}) {
    both.push_back(*ChildProcess::start({kAllot, {"verify", dir("a")}, {}}, dir(name)));
  }
  for (ChildProcess& process : both) {
    EXPECT_EQ(process.waitFor(std::chrono::seconds(60)).value_or(-1), 0);
  }
  EXPECT_THAT(readFile(dir("one")), HasSubstr("verified: "));
  EXPECT_EQ(readFile(dir("one")), readFile(dir("two")));
  said({"set", dir("a"), "spec.update.maxUpdates=" + std::to_string(done + 2)});
  said({"run", "--resume", "--dir", dir("a"), "--kv-memory", "256"});
  EXPECT_EQ(version("a"), done + 2);
  EXPECT_THAT(said({"verify", dir("a")}), HasSubstr(std::to_string(done + 2) + " updates"));
  EXPECT_TRUE(nobodyIsLeft());
}

TEST_F(RunControl, WhatCannotBeIsRefusedInOneSentence) {
  for (const char* command : {"status", "top", "verify", "pause", "resume", "stop"}) {
    EXPECT_THAT(refused({command}), HasSubstr("there is no runs/latest here")) << command;
    EXPECT_THAT(refused({command, "none"}), HasSubstr("none is no folder")) << command;
    EXPECT_THAT(refused({command, folder_}), HasSubstr("holds no run")) << command;
    EXPECT_THAT(refused({command, "--run", "x"}), HasSubstr("add --redis URL")) << command;
    EXPECT_THAT(refused({command, "--redis", "http://x"}), HasSubstr("unknown scheme")) << command;
    EXPECT_THAT(refused({command, "--redis", "unix:" + folder_ + "/none"}, 69),
                HasSubstr(folder_ + "/none"))
        << command;
    const Output help = allot({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("Example")) << command;
  }
  for (const char* command : {"extend", "set", "fork", "export", "import", "acl", "run"}) {
    const Output help = allot({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("Example")) << command;
    EXPECT_EQ(allot({command}).status, 64) << command;
  }
  fs::create_directory(dir("x"));
  std::ofstream(dir("x/run.json")) << "{\"run_id\": \"../..\"}";
  EXPECT_THAT(refused({"status", "x"}), HasSubstr("does not name a run"));
  std::ofstream(dir("x/run.json")) << "{\"run_id\": \"01M7YCD2AZVZVPGCPCSFDWQWNZ\"}";
  EXPECT_THAT(refused({"status", "x"}), HasSubstr("has not begun"));
  fs::create_directory(dir("x/appendonlydir"));
  EXPECT_THAT(refused({"status", "x", "--redis-server", "no-such-redis"}),
              HasSubstr("no-such-redis was not found: install redis-server"));
  EXPECT_THAT(refused({"status", "x"}), HasSubstr("there is no run"));
  EXPECT_THAT(refused({"fork", "--from", "x@y", kRecall}), HasSubstr("RUN@VERSION"));
  EXPECT_THAT(refused({"import", "x", "--dir", "y"}), HasSubstr("holds no exported run"));
  EXPECT_THAT(refused({"import", "x"}), HasSubstr("say where to"));
  said({"acl", "--out", "accounts"});
  EXPECT_TRUE(fs::exists(dir("accounts/users.acl")));
}

}  // namespace
}  // namespace allot
