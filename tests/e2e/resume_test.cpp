// Run folders that a process left behind go on. Real binaries, the real model.
#include <signal.h>
#include <unistd.h>

#include "core/spec/spec.h"
#include "core/ulid.h"
#include "store/store.h"
#include "tests/e2e/programs.h"
#include "tests/store/redis_server.h"

namespace allot {
namespace {

const std::string kExperiment = ALLOT_SOURCE_DIR "/tests/e2e/experiment.yaml";

class Folder : public FolderTest {
 protected:
  static Output allot(std::vector<std::string> arguments) {
    return valueOf(capture({kAllot, std::move(arguments), {}}));
  }
  // As `allot run` writes it.
  void note(const std::string& run_id) const {
    std::ofstream(run_ + "/run.json") << json({{"run_id", run_id},
                                               {"experiment_file", file_},
                                               {"set", json::array()},
                                               {"model", kModel}});
  }
  // Leaves a run in run_ that has no result yet.
  void leave(const v1::Experiment& experiment,
             const std::optional<v1::ModelFacts>& model = std::nullopt) const {
    const std::string run_id = makeUlid(1'795'000'000'000, 1, 2);
    const test::RedisServer server;
    const auto store = *openRedisStore(server.url(), run_id);
    ASSERT_TRUE(store->createRun({experiment, specDigest(experiment), true, 1}));
    if (model) {
      ASSERT_TRUE(store->agreeOnModel(*model));
    }
    fs::create_directories(run_);
    fs::copy(server.folder() + "/appendonlydir", run_ + "/appendonlydir");
    note(run_id);
  }
  // A run of three updates in run_.
  void run() const {
    fs::copy(kExperiment, file_);
    const Output made = allot(
        {"run", file_, "--dir", run_, "--model", kModel, "--workers", "1", "--kv-memory", "256"});
    ASSERT_EQ(made.status, 0) << made.out << made.err;
  }
  Output resume() const {
    return allot({"run", file_, "--resume", "--dir", run_, "--model", kModel, "--workers", "1",
                  "--kv-memory", "256"});
  }
  json status() const { return json::parse(allot({"status", run_, "--json"}).out, nullptr, false); }

  const std::string run_ = temp_.path() + "/run";
  const std::string file_ = temp_.path() + "/experiment.yaml";
};

TEST_F(Folder, ARunThatEndedIsExtendedAndResumed) {
  run();
  EXPECT_EQ(status()["version"], 3);
  const Output extended = allot({"extend", run_, "--updates", "1"});
  EXPECT_EQ(extended.status, 0) << extended.err;
  const Output resumed = resume();
  EXPECT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_EQ(status()["version"], 4);
  EXPECT_EQ(status()["episodes"], 8);
  EXPECT_EQ(allot({"verify", run_}).status, 0);
}

// A disk that lost the store, and a backup of it from before the run's updates.
TEST_F(Folder, ARunThatItsStoreHasLostIsNotBegunAnew) {
  run();
  const std::string export_file = readFile(run_ + "/export.json");
  const std::string note = readFile(run_ + "/run.json");
  fs::remove_all(run_ + "/appendonlydir");
  const Output lost = resume();
  EXPECT_EQ(lost.status, 65) << lost.out << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("has lost this run: nothing was changed; `allot import " + run_));
  EXPECT_THAT(lost.err, HasSubstr("which has 3 updates"));

  const test::RedisServer server;
  const auto before =
      valueOf(openRedisStore(server.url(), json::parse(note)["run_id"].get<std::string>()));
  const v1::Experiment experiment = valueOf(parseExperiment(readFile(file_), file_, {}));
  ASSERT_TRUE(before->createRun({experiment, specDigest(experiment), false, 1}));
  fs::remove_all(run_ + "/appendonlydir");
  fs::copy(server.folder() + "/appendonlydir", run_ + "/appendonlydir");
  const Output older = resume();
  EXPECT_EQ(older.status, 65) << older.out << older.err;
  EXPECT_THAT(older.err, HasSubstr("has only 0 updates of this run"));

  EXPECT_EQ(readFile(run_ + "/export.json"), export_file);
  EXPECT_EQ(readFile(run_ + "/run.json"), note);
  const std::string other = temp_.path() + "/other";
  const Output imported = allot({"import", run_, "--dir", other});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(allot({"verify", other}).status, 0);
}

TEST_F(Folder, WithoutAResultARunIsResumedAsItsFileIsNow) {
  fs::copy(kExperiment, file_);
  v1::ModelFacts other;
  other.set_layers(5);
  leave(valueOf(parseExperiment(readFile(file_), file_, {"spec.model.path=nowhere"})), other);
  const Output resumed = resume();
  EXPECT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_EQ(status()["version"], 3);
  EXPECT_THAT(readFile(run_ + "/aggregator.log"), HasSubstr("begins anew"));
  EXPECT_EQ(allot({"verify", run_}).status, 0);
}

// A file that is applied now is refused with such a key; a run that has it keeps it.
TEST_F(Folder, ARunStoredWithAKeyWithoutEffectIsResumed) {
  std::string text = readFile(kExperiment);
  const size_t at = text.find("model: {");
  ASSERT_NE(at, std::string::npos);
  text.insert(at + 8, "chatTemplate: qwen2, ");
  std::ofstream(file_) << text;
  leave(valueOf(parseStoredExperiment(text, file_)));
  const Output resumed = resume();
  EXPECT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_EQ(status()["version"], 3);
  const std::string fresh = temp_.path() + "/fresh";
  const Output refused = allot({"run", file_, "--dir", fresh});
  EXPECT_EQ(refused.status, 64);
  EXPECT_THAT(refused.err, HasSubstr("spec.model.chatTemplate: \"qwen2\" has no effect"));
  EXPECT_FALSE(fs::exists(fresh));
}

// While questions are made and the model is looked at, which may take minutes.
TEST_F(Folder, CtrlCBeforeARunBeginsEndsItAtOnce) {
  fs::copy(kExperiment, file_);
  auto process = valueOf(ChildProcess::start({kAllot,
                                              {"run", file_, "--dir", run_, "--model", kModel,
                                               "--set", "spec.task.heldOutQuestions=1000000"},
                                              {}},
                                             temp_.path() + "/run.log"));
  const auto worker = [&] {
    return readFile("/proc/" + std::to_string(process.pid()) + "/task/" +
                    std::to_string(process.pid()) + "/children");
  };
  ASSERT_TRUE(waitFor([&] { return !worker().empty(); }, 60));
  const int pid = std::stoi(worker());
  process.signal(SIGINT);
  EXPECT_EQ(process.waitFor(std::chrono::seconds(20)).value_or(0), 128 + SIGINT);
  EXPECT_TRUE(waitFor([&] { return kill(pid, 0) != 0; }, 20));
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(Folder, WhereNobodyMayWriteTheFilesOfARunAreRead) {
  run();
  fs::permissions(temp_.path(), fs::perms(0755));
  fs::permissions(run_, fs::perms(0555));
  const auto asAnother = [&](std::vector<std::string> all) {
    // Root may write everywhere.
    if (geteuid() == 0) {
      all.insert(all.begin(),
                 {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"});
    }
    const std::string program = all.front();
    all.erase(all.begin());
    return *capture({program, all, {}});
  };
  // The checkout may be in a folder that other users cannot enter.
  const std::string allot_here = temp_.path() + "/allot";
  fs::copy_file(kAllot, allot_here);
  const auto allotAsAnother = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), allot_here);
    return asAnother(arguments);
  };
  const Output status = allotAsAnother({"status", run_});
  EXPECT_EQ(status.status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("updates: 3 of 3"));
  EXPECT_THAT(status.err, HasSubstr("cannot be written to"));
  const Output verified = allotAsAnother({"verify", run_});
  EXPECT_THAT(verified.out, HasSubstr("3 updates")) << verified.err;
  EXPECT_EQ(allotAsAnother({"extend", run_, "--updates", "1"}).status, 64);
  fs::permissions(run_, fs::perms(0755));
}

// As on a disk that is full: redis-server ends, and every one that is started after it.
TEST_F(Folder, ARunWhoseRedisDoesNotComeBackIsKeptAndGoesOn) {
  fs::copy(kExperiment, file_);
  const std::string broken = temp_.path() + "/broken", pid = temp_.path() + "/pid";
  const std::string program =
      temp_.write("redis", "#!/bin/sh\n[ ! -e " + broken + " ] || exit 1\necho $$ >" + pid +
                               "\nexec redis-server \"$@\"\n");
  fs::permissions(program, fs::perms::owner_all);
  auto process = valueOf(ChildProcess::start(
      {kAllot,
       {"run", file_, "--dir", run_, "--model", kModel, "--workers", "1", "--kv-memory", "256",
        "--redis-server", program, "--set", "spec.update.maxUpdates=100000"},
       {}},
      temp_.path() + "/run.log"));
  const auto version = [&] {
    const json now = status();
    return now.is_object() ? now.value("version", 0) : 0;
  };
  ASSERT_TRUE(waitFor([&] { return version() >= 2 || process.poll(); }, 120));
  std::ofstream(broken) << "";
  kill(std::stoi(readFile(pid)), SIGKILL);
  EXPECT_EQ(valueOf(process.waitFor(std::chrono::seconds(120))), 70);
  EXPECT_THAT(readFile(temp_.path() + "/run.log"),
              HasSubstr("`allot run --resume --dir " + run_ + "` goes on"));
  fs::remove(broken);
  EXPECT_GE(version(), 2);
  EXPECT_EQ(allot({"verify", run_}).status, 0);
}

}  // namespace
}  // namespace allot
