// A Redis whose memory is full: every script that writes says so and writes nothing, and once there
// is room again everything goes on where it was.
#include <filesystem>
#include <set>

#include "store/redis/redis_connection.h"
#include "store/store_observer.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/fake_server.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

constexpr const char* kFull = "the store is full: raise maxmemory of the Redis at ";

// Which scripts were asked for.
class Asked final : public StoreObserver {
 public:
  void requested(std::string_view command, RequestOutcome, std::optional<double>) override {
    names_.insert(std::string(command));
  }
  void reconnected() override {}
  const std::set<std::string>& names() const { return names_; }

 private:
  std::set<std::string> names_;
};

class FullStore : public ::testing::Test {
 protected:
  void fill() { ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "1"})); }
  void makeRoom() { ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "0"})); }
  std::unique_ptr<Store> open(const std::string& run) {
    return std::move(*openRedisStore(server_.url(), run, 5000, &asked_));
  }

  // A run in which every call has something to do.
  void prepare() {
    epoch_ = run_->acquireLease("a", 3'600'000)->epoch;
    ASSERT_TRUE(succeeded(run_->createRun(runSpec("aa"))));
    ASSERT_TRUE(succeeded(Leadership(*run_, epoch_).publishInitial(policy(0), state(0))));
    ASSERT_TRUE(succeeded(Leadership(*run_, epoch_).planUnits({unit(0, 0, "a"), unit(0, 1, "b")})));
    ASSERT_TRUE(succeeded(run_->pushEvaluation(evaluationOf(unit(0, 0, "a"), "w"))));
    ASSERT_TRUE(succeeded(run_->pushResult(result("r1"), 10)));
    ASSERT_TRUE(succeeded(run_->pushResult(result("r2"), 10)));
    entries_ = run_->readInbox(10, 0).value();
    ASSERT_THAT(entries_, SizeIs(2));
    evaluations_ = run_->readRecorded(10).value();
    ASSERT_THAT(evaluations_, SizeIs(1));
    ASSERT_TRUE(succeeded(unbegun_->createRun(runSpec("aa"))));
    fresh_epoch_ = fresh_->acquireLease("a", 3'600'000)->epoch;
    ASSERT_TRUE(succeeded(imported_->beginImport()));
    ASSERT_TRUE(succeeded(imported_->importHistory({commitOf(0, {}).record})));
  }

  RedisServer server_;
  RedisConnection raw_{*parseRedisUrl(server_.url()), 5000};
  Asked asked_;
  std::unique_ptr<Store> run_ = open("run");
  std::unique_ptr<Store> imported_ = open("imported");
  std::unique_ptr<Store> fresh_ = open("fresh");
  std::unique_ptr<Store> unbegun_ = open("unbegun");
  uint64_t epoch_ = 0, fresh_epoch_ = 0;
  std::vector<InboxEntry> entries_;
  std::vector<Evaluation> evaluations_;
};

TEST_F(FullStore, EveryScriptSaysSoOrNeedsNoRoom) {
  prepare();
  fill();
  RunImage image;
  image.spec = runSpec("aa");
  image.state = state(1);
  v1::WorkerBeat beat;
  beat.set_worker("w");
  const auto control = valueOf(run_->readControl().value());
  const auto reopen = unit(0, 0, "a");
  const RunSpec next = runSpec("cc");
  v1::AuditTasks tasks;
  tasks.set_worker("w");
  v1::AuditAnswers answers;
  answers.set_worker("w");

  const std::vector<std::pair<const char*, Status>> refused = {
      {"createRun", fresh_->createRun(runSpec("bb"))},
      {"replaceRun", statusOf(unbegun_->replaceRun(
                         next, {Desired::kRunning, next.experiment, next.experiment, 1}))},
      {"changeControl", statusOf(run_->changeControl(control))},
      {"publishInitial", Leadership(*fresh_, fresh_epoch_).publishInitial(policy(0), state(0))},
      {"writeState", Leadership(*run_, epoch_).writeState(state(0, 7))},
      {"publishStatus", Leadership(*run_, epoch_).publishStatus({})},
      {"commit", Leadership(*run_, epoch_).commit(commitOf(0, entries_))},
      {"exchangeAudits", statusOf(Leadership(*run_, epoch_).exchangeAudits({tasks}))},
      {"answerAudits", run_->answerAudits(answers)},
      {"planUnits", Leadership(*run_, epoch_).planUnits({unit(0, 2, "c")})},
      {"resetTickets", Leadership(*run_, epoch_).resetTickets(5)},
      {"pushResult", statusOf(run_->pushResult(result("r3"), 10))},
      {"claimUnits", statusOf(run_->claimUnits({.holder = "w", .lease_ms = 1000}))},
      {"pushEvaluation", statusOf(run_->pushEvaluation(evaluationOf(unit(0, 1, "b"), "w")))},
      {"beat", run_->beat({.beat = beat, .ttl_ms = 1000})},
      {"importHistory", imported_->importHistory({commitOf(1, {}).record})},
      {"importEvaluations", imported_->importEvaluations({evaluationOf(unit(0, 0, "a"), "w")})},
      {"endImport", imported_->endImport(image)},
      {"findOrNameRun", statusOf(findOrNameRun(server_.url(), "other", "01HZ"))},
      {"reissueTicket", Leadership(*run_, epoch_).reissueTicket(3)},
      {"agreeOnModel", statusOf(fresh_->agreeOnModel({}))},
  };
  for (const auto& [call, status] : refused) {
    EXPECT_TRUE(failsWith(status, ErrorCode::kUnavailable)) << call;
    if (!status) {
      EXPECT_THAT(status.error().message, HasSubstr(kFull)) << call;
      EXPECT_THAT(status.error().message, Not(HasSubstr("backup"))) << call;
    }
  }
  // What begins by taking away, or reads: the leader goes on to lead and to make room.
  EXPECT_TRUE(succeeded(open("other")->beginImport()));
  EXPECT_TRUE(succeeded(run_->takeTickets({1, 10})));
  EXPECT_TRUE(succeeded(run_->readLease()));
  EXPECT_TRUE(succeeded(run_->listWorkers()));
  EXPECT_TRUE(succeeded(run_->listUnits()));
  EXPECT_TRUE(succeeded(run_->readModel()));
  EXPECT_TRUE(succeeded(run_->readHistory(0, 1)));
  EXPECT_TRUE(succeeded(run_->readInbox(10, 0)));
  EXPECT_TRUE(succeeded(Leadership(*run_, epoch_).withdrawUnits()));
  EXPECT_TRUE(succeeded(run_->leave("w")));
  EXPECT_TRUE(succeeded(run_->releaseLease("nobody")));
  EXPECT_TRUE(Leadership(*run_, epoch_).repair({}));
  EXPECT_TRUE(succeeded(Leadership(*run_, epoch_).acceptEvaluations(evaluations_)));
  const auto accepted = run_->readEvaluations("", 1).value();
  EXPECT_TRUE(
      succeeded(Leadership(*run_, epoch_)
                    .rejectEvaluation(accepted.at(0), RefusalKind::kInvalid, "no", &reopen, 0)));
  EXPECT_TRUE(succeeded(Leadership(*run_, epoch_).reject(entries_[0], RefusalKind::kStale, "old")));
  EXPECT_TRUE(succeeded(run_->acquireLease("a", 1000)));
  (void)run_->releaseUnits("w", {unit(0, 1, "b")});
  EXPECT_TRUE(succeeded(Leadership(*run_, epoch_).withdrawUnits()));

  // A script that is not called here would be missed: it belongs into one of the two lists.
  std::set<std::string> missed;
  for (const auto& file :
       std::filesystem::directory_iterator(ALLOT_SOURCE_DIR "/store/redis/lua")) {
    const std::string name = file.path().stem();
    if (!asked_.names().contains(name) && name != "name_run") missed.insert(name);
  }
  EXPECT_THAT(missed, IsEmpty());
}

TEST_F(FullStore, GoesOnOnceThereIsRoom) {
  prepare();
  fill();
  ASSERT_TRUE(
      failsWith(Leadership(*run_, epoch_).commit(commitOf(0, entries_)), ErrorCode::kUnavailable));
  ASSERT_TRUE(failsWith(run_->pushResult(result("r3"), 10), ErrorCode::kUnavailable));
  ASSERT_TRUE(
      failsWith(imported_->importHistory({commitOf(1, {}).record}), ErrorCode::kUnavailable));
  makeRoom();
  EXPECT_EQ(run_->readPolicy().value()->snapshot.version(), 0u);
  EXPECT_EQ(run_->inboxSize().value(), 2u);
  EXPECT_TRUE(succeeded(Leadership(*run_, epoch_).commit(commitOf(0, entries_))));
  EXPECT_EQ(run_->pushResult(result("r3"), 10).value(), PushOutcome::kAccepted);
  EXPECT_EQ(run_->readHistory(0, 10).value().size(), 1u);
  EXPECT_TRUE(succeeded(imported_->importHistory({commitOf(1, {}).record})));
}

TEST_F(FullStore, SaysHowFullItIs) {
  ASSERT_TRUE(raw_.call({"CONFIG", "SET", "maxmemory", "104857600"}));
  const auto before = valueOf(run_->fill());
  EXPECT_EQ(before.limit_bytes, 104857600u);
  EXPECT_GT(before.used_bytes, 100'000u);
  const std::string large(1 << 20, 'x');
  ASSERT_TRUE(raw_.call({"SET", "large", large}));
  EXPECT_GT(run_->fill()->used_bytes, before.used_bytes + large.size() - 100'000);
  makeRoom();
  EXPECT_EQ(run_->fill()->limit_bytes, 0u);
}

// Redis 6.2 wraps what a script met into words of its own.
TEST(FullStoreOfRedis6, IsKnownByItsWords) {
  const std::string at =
      "ERR Error running script (call to f_0123): @user_script:3: @user_script: 3: ";
  const std::pair<std::string, ErrorCode> cases[] = {
      {at + "-OOM command not allowed when used memory > 'maxmemory'.", ErrorCode::kUnavailable},
      {"@user_script: 15: -OOM command not allowed when used memory > 'maxmemory'.",
       ErrorCode::kUnavailable},
      {at + "-MISCONF Errors writing to the AOF file: No space left on device",
       ErrorCode::kUnavailable},
      {at + "-READONLY You can't write against a read only replica.", ErrorCode::kUnavailable},
      {at + "The user executing the script can't run this command or subcommand",
       ErrorCode::kUsage},
      {at + "Script attempted to access nonexistent global variable 'x'", ErrorCode::kInternal},
  };
  for (const auto& [words, code] : cases) {
    const FakeServer server("-" + words + "\r\n");
    const auto store = std::move(*openRedisStore(server.url(), "run", 2000));
    const auto pushed = store->pushResult(result("r"), 1);
    EXPECT_TRUE(failsWith(pushed, code)) << words;
    if (!pushed && words.find("OOM") != std::string::npos) {
      EXPECT_THAT(pushed.error().message, HasSubstr(kFull + server.url())) << words;
    }
  }
}

}  // namespace
}  // namespace allot::test
