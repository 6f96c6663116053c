// The accounts of store/redis/acl.h on a real Redis 7: each role can make its calls and nothing
// else.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/digest.h"
#include "store/redis/acl.h"
#include "store/redis/lua_scripts.h"
#include "store/redis/redis_connection.h"
#include "tests/results.h"
#include "tests/store/conformance.h"
#include "tests/store/redis_server.h"
#include "tests/temp_folder.h"

namespace allot::test {
namespace {

// The accounts, and one that may do everything, to look from outside.
void writeUsers(const std::string& folder) {
  ASSERT_TRUE(succeeded(writeAcl(folder + "/acl")));
  std::ofstream(folder + "/users.acl")
      << readFile(folder + "/acl/users.acl") << "user tester on >tester ~* &* +@all\n";
  std::ofstream(folder + "/acl/tester.password") << "tester";
}

// What a role did, and what the server did not let it do.
class Log {
 public:
  template <typename T>
  bool note(const std::string& what, const Result<T>& result) {
    if (result) return true;
    (result.error().code == ErrorCode::kUsage ? refused : failed)
        .push_back(what + ": " + result.error().message);
    return false;
  }
  std::vector<std::string> refused;
  std::vector<std::string> failed;
};

#define ALLOT_NOTE(call) log.note(#call, call)

class Acl : public ::testing::Test {
 protected:
  std::string urlOf(const std::string& user) const {
    return server_.url() + "?user=" + user + "&password-file=" + server_.folder() + "/acl/" + user +
           ".password";
  }
  std::unique_ptr<Store> open(const std::string& user, const std::string& run = "run") {
    return std::move(*openRedisStore(urlOf(user), run));
  }
  RedisConnection connect(const std::string& user) {
    return RedisConnection(*parseRedisUrl(urlOf(user)), 5000);
  }

  void prepareRun(Log& log, Store& store, const std::string& run) {
    ALLOT_NOTE(findOrNameRun(urlOf("aggregator"), run, run));
    ALLOT_NOTE(store.createRun(runSpec(run)));
    ALLOT_NOTE(store.readSpec());
    const RunSpec next = runSpec(run + "-edited");
    ALLOT_NOTE(store.replaceRun(next, {Desired::kRunning, next.experiment, next.experiment, 1}));
    if (const auto control = store.readControl(); ALLOT_NOTE(control) && *control)
      ALLOT_NOTE(store.changeControl(**control));
    ALLOT_NOTE(store.acquireLease("a", 3'600'000));
    ALLOT_NOTE(store.readLease());
    ALLOT_NOTE(Leadership(store, 1).publishInitial(policy(0), state(0)));
    ALLOT_NOTE(store.readState());
    ALLOT_NOTE(Leadership(store, 1).writeState(state(0)));
    ALLOT_NOTE(Leadership(store, 1).publishStatus({}));
    ALLOT_NOTE(Leadership(store, 1).resetTickets(0));
    repair(log, store, run);
    ALLOT_NOTE(Leadership(store, 1).reissueTicket(0));
    ALLOT_NOTE(Leadership(store, 1).planUnits({unit(0, 0, "a"), unit(0, 0, "b")}));
    ALLOT_NOTE(store.readInbox(1, 1));
  }
  void work(Log& log, Store& store, const std::string& run) {
    ALLOT_NOTE(findRun(urlOf("worker"), "recall"));
    ALLOT_NOTE(store.readSpec());
    ALLOT_NOTE(store.readControl());
    ALLOT_NOTE(store.agreeOnModel({}));
    ALLOT_NOTE(store.readModel());
    ALLOT_NOTE(store.readPolicy());
    ALLOT_NOTE(store.takeTickets({1, 10}));
    ALLOT_NOTE(store.takeTickets({1, 10}));
    ALLOT_NOTE(store.pushResult(result(run + "-1"), 10));
    ALLOT_NOTE(store.pushResult(result(run + "-2"), 10));
    ALLOT_NOTE(store.claimUnits({.holder = "w", .warm = {0}, .count = 2, .lease_ms = 1000}));
    ALLOT_NOTE(store.releaseUnits("w", {unit(0, 0, "a"), unit(0, 0, "b")}));
    ALLOT_NOTE(store.pushEvaluation(evaluationOf(unit(0, 0, "a"), "w")));
    v1::WorkerBeat beat;
    beat.set_worker("w");
    ALLOT_NOTE(store.beat({.beat = beat, .ttl_ms = 3'600'000}));
    beat.set_worker("leaves");
    ALLOT_NOTE(store.beat({.beat = beat, .ttl_ms = 3'600'000}));
    ALLOT_NOTE(store.leave("leaves"));
    ALLOT_NOTE(store.readAudits("w"));
    v1::AuditAnswers answers;
    answers.set_worker("w");
    ALLOT_NOTE(store.answerAudits(answers));
    ALLOT_NOTE(store.awaitNews(1, [] { return false; }));
  }
  void update(Log& log, Store& store) {
    ALLOT_NOTE(store.fill());
    ALLOT_NOTE(store.reopenInbox());
    if (const auto entries = store.readInbox(10, 0); ALLOT_NOTE(entries) && entries->size() == 2) {
      ALLOT_NOTE(store.countedTickets({0, 1}));
      Commit first = commitOf(0, {entries->at(0)});
      first.tickets = {5};
      first.forget_policy = 0;
      ALLOT_NOTE(Leadership(store, 1).commit(first));
      ALLOT_NOTE(store.readPolicies(0, 2));
      ALLOT_NOTE(Leadership(store, 1).reject(entries->at(1), RefusalKind::kStale, "old"));
    }
    const auto recorded = store.readRecorded(10);
    if (ALLOT_NOTE(recorded) && recorded->size() == 1) {
      ALLOT_NOTE(Leadership(store, 1).acceptEvaluations(*recorded));
      ALLOT_NOTE(store.readEvaluations("", 10));
      const auto again = unit(0, 0, "a");
      ALLOT_NOTE(Leadership(store, 1).rejectEvaluation(recorded->at(0), RefusalKind::kInvalid, "no",
                                                       &again, 0));
    }
    v1::AuditTasks tasks;
    tasks.set_worker("w");
    ALLOT_NOTE(Leadership(store, 1).exchangeAudits({tasks}));
    ALLOT_NOTE(Leadership(store, 1).exchangeAudits({}));
    ALLOT_NOTE(Leadership(store, 1).withdrawUnits());
    ALLOT_NOTE(store.releaseLease("a"));
  }
  // Breaks a key of each kind that the aggregator mends.
  void repair(Log& log, Store& store, const std::string& run) {
    const auto key = [&](const char* name) { return "allot:{" + run + "}:" + name; };
    const std::string units = key("units"), news = key("news"), beats = key("beats");
    const std::string workers = key("workers");
    EXPECT_TRUE(tester_.call({"SET", units, "x"}));
    EXPECT_TRUE(tester_.call({"SET", key("tickets"), "x"}));
    EXPECT_TRUE(tester_.call({"DEL", news}));
    EXPECT_TRUE(
        tester_.call({"XADD", news, "18446744073709551615-18446744073709551615", "id", "a"}));
    EXPECT_TRUE(tester_.call({"ZADD", workers, "9e15", "w"}));
    for (int i = 0; i < 200; ++i)
      EXPECT_TRUE(tester_.call({"HSET", beats, std::to_string(i), "x"}));
    ALLOT_NOTE(Leadership(store, 1).repair({}));
    EXPECT_TRUE(tester_.call({"ZREM", workers, "w"}));
  }
  void import(Log& log, Store& store, const std::string& run) {
    ALLOT_NOTE(store.beginImport());
    auto record = commitOf(0, {}).record;
    *record.add_results() = result(run + "-1");
    ALLOT_NOTE(store.importHistory({record}));
    ALLOT_NOTE(store.importEvaluations({evaluationOf(unit(0, 0, "a"), "w")}));
    RunImage image;
    image.spec = runSpec(run);
    image.state = state(1);
    image.open_units = {unit(0, 0, "b")};
    image.model.emplace().set_layers(4);
    ALLOT_NOTE(store.endImport(image));
  }
  void look(Log& log, Store& store, const std::string& user) {
    ALLOT_NOTE(findRun(urlOf(user), "recall"));
    ALLOT_NOTE(listRuns(urlOf(user)));
    ALLOT_NOTE(store.readSpec());
    ALLOT_NOTE(store.readModel());
    ALLOT_NOTE(store.readControl());
    ALLOT_NOTE(store.readLease());
    ALLOT_NOTE(store.readState());
    ALLOT_NOTE(store.readStatus());
    ALLOT_NOTE(store.readPolicy());
    ALLOT_NOTE(store.inboxSize());
    ALLOT_NOTE(store.openUnits());
    ALLOT_NOTE(store.listUnits());
    ALLOT_NOTE(store.listWorkers());
    ALLOT_NOTE(store.readHistory(0, 10));
    ALLOT_NOTE(store.readEvaluations("", 10));
    ALLOT_NOTE(store.nextTicket());
    ALLOT_NOTE(store.readRefusalCounts());
    ALLOT_NOTE(store.readRefusals(10));
  }

  void administer(Log& log) {
    auto admin = connect("admin");
    ALLOT_NOTE(admin.call({"PING"}));
    ALLOT_NOTE(admin.call({"INFO", "server"}));
    ALLOT_NOTE(admin.call({"ACL", "WHOAMI"}));
    ALLOT_NOTE(admin.call({"CLIENT", "LIST"}));
    ALLOT_NOTE(admin.call({"CLIENT", "KILL", "USER", "reader"}));
    // None runs.
    const auto killed = admin.call({"SCRIPT", "KILL"});
    if (!killed && killed.error().message.find("NOTBUSY") == std::string::npos) ALLOT_NOTE(killed);
    ALLOT_NOTE(admin.call({"ACL", "LOAD"}));
    (void)tester_.call({"PING"});  // which may have closed the connections
  }

  // Has a role do something, each script sent whole at first, and notes which it ran.
  template <typename Calls>
  void as(const std::string& role, const Calls& calls) {
    EXPECT_TRUE(tester_.call({"SCRIPT", "FLUSH"}));
    calls();
    std::vector<std::string_view> words = {"SCRIPT", "EXISTS"};
    for (const RedisScript* script : lua::scripts) words.push_back(script->sha1);
    const auto known = valueOf(tester_.call(words));
    for (size_t i = 0; i < lua::scripts.size(); ++i)
      if (known.view()[i].integer() == 1) ran_[lua::scripts[i]->name].insert(role);
  }

  // Every call that a role makes, on a run of its own.
  std::map<std::string, Log> everyCall() {
    const std::string run = "run" + std::to_string(++runs_);
    std::map<std::string, Log> logs;
    const auto aggregator = open("aggregator", run);
    as("aggregator", [&] { prepareRun(logs["aggregator"], *aggregator, run); });
    as("worker", [&] { work(logs["worker"], *open("worker", run), run); });
    as("reader", [&] { look(logs["reader"], *open("reader", run), "reader"); });
    auto reader = connect("reader");
    logs["reader"].note("PING", reader.call({"PING"}));
    as("aggregator", [&] {
      look(logs["aggregator"], *aggregator, "aggregator");
      update(logs["aggregator"], *aggregator);
      import(logs["aggregator"], *open("aggregator", run + "-imported"), run);
    });
    administer(logs["admin"]);
    return logs;
  }

  RedisServer server_{{"--aclfile", "FOLDER/users.acl", "--appendfsync", "no"}, writeUsers};
  RedisConnection tester_{connect("tester")};
  std::map<std::string, std::set<std::string>> ran_;  // script -> roles that ran it
  int runs_ = 0;
};

TEST_F(Acl, EveryCallOfARoleSucceeds) {
  const auto logs = everyCall();
  ASSERT_THAT(logs, SizeIs(4));
  for (const auto& [role, log] : logs) {
    EXPECT_THAT(log.refused, IsEmpty()) << role;
    EXPECT_THAT(log.failed, IsEmpty()) << role;
  }
}

TEST_F(Acl, EachScriptIsRunByTheRolesThatItNames) {
  everyCall();
  for (const RedisScript* script : lua::scripts)
    EXPECT_EQ(ran_[script->name], std::set<std::string>(script->roles.begin(), script->roles.end()))
        << script->name;
}

TEST_F(Acl, NoRoleHasACommandThatItDoesNotNeed) {
  for (const AclRole& role : aclRoles())
    for (const std::string& command : role.commands) {
      ASSERT_TRUE(tester_.call({"ACL", "SETUSER", role.name, "-" + command}));
      // Who was let in before takes it for a change of accounts that goes on: it is to wait.
      const Log log = everyCall()[role.name];
      EXPECT_FALSE(log.refused.empty() && log.failed.empty()) << role.name << " " << command;
      ASSERT_TRUE(tester_.call({"ACL", "SETUSER", role.name, "+" + command}));
    }
}

TEST_F(Acl, NobodyAdministersTheServerOrLeavesItsKeys) {
  using Words = std::vector<std::string_view>;
  for (const AclRole& role : aclRoles()) {
    auto connection = connect(role.name);
    for (const Words& words : {Words{"FLUSHALL"},
                               Words{"FLUSHDB"},
                               Words{"CONFIG", "GET", "*"},
                               Words{"KEYS", "*"},
                               Words{"SCAN", "0"},
                               Words{"ACL", "LIST"},
                               Words{"SHUTDOWN"},
                               Words{"SCRIPT", "FLUSH"},
                               Words{"CLIENT", "LIST"},
                               Words{"MONITOR"},
                               Words{"SUBSCRIBE", "a"},
                               Words{"PUBLISH", "allot:a", "b"},
                               Words{"GET", "theirs"},
                               Words{"SAVE"},
                               Words{"EVAL", "return redis.call('GET', 'theirs')", "0"},
                               Words{"EVAL", "return redis.call('KEYS', '*')", "0"},
                               Words{"GET", "allot:{run}:state"},
                               Words{"FUNCTION", "LIST"},
                               Words{"ACL", "SETUSER", "x"},
                               Words{"SCRIPT", "KILL"}}) {
      const bool may = role.name == "admin"
                           ? words[0] == "CLIENT" || words.back() == "KILL"
                           : role.name != "worker" && words.back().ends_with("state");
      if (may) continue;
      EXPECT_TRUE(failsWith(connection.call(words), ErrorCode::kUsage))
          << role.name << " " << words[0];
    }
  }
  auto nobody = std::move(*openRedisStore(server_.url(), "run"));
  EXPECT_TRUE(failsWith(nobody->readPolicy(), ErrorCode::kUsage));
}

TEST_F(Acl, AWorkerCannotWriteWhatTheAggregatorDecides) {
  ASSERT_THAT(everyCall()["worker"].refused, IsEmpty());
  using Words = std::vector<std::string_view>;
  auto worker = connect("worker");
  for (const Words& words :
       {Words{"HSET", "allot:{run1}:policy", "version", "7"},
        Words{"EVAL", "redis.call('HSET', 'allot:{run1}:policy', 'version', '7')", "0"},
        Words{"EVAL", "redis.call('HSET', KEYS[1], 'version', '7')", "1", "allot:{run1}:policy"},
        Words{"HSET", "allot:{run1}:spec", "sha256", "x"},
        Words{"HSET", "allot:{run1}:control", "desired", "stopped"},
        Words{"XADD", "allot:{run1}:history", "*", "rec", "x"},
        Words{"SETNX", "allot:{run1}:state", "x"},
        Words{"HSET", "allot:{run1}:lease", "epoch", "9"},
        Words{"HSET", "allot:index", "recall", "zzz"}, Words{"SADD", "allot:{run1}:seen", "x"},
        Words{"DEL", "allot:{run1}:inbox"}, Words{"XDEL", "allot:{run1}:inbox", "1-0"},
        Words{"GET", "allot:{run1}:state"}, Words{"XADD", "allot:{run1}:dead", "*", "id", "x"}})
    EXPECT_TRUE(failsWith(worker.call(words), ErrorCode::kUsage)) << words[0] << " " << words[1];

  const auto store = open("worker", "run1");
  EXPECT_TRUE(failsWith(Leadership(*store, 1).publishStatus({}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->acquireLease("w", 1000), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(Leadership(*store, 1).commit(commitOf(1, {})), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->changeControl({}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->readHistory(0, 1), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(open("worker", "new")->createRun(runSpec("aa")), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(open("worker", "new")->beginImport(), ErrorCode::kUsage));
}

// With the default user off: Redis 7.0 loads its file as that user, and said "no permission" to
// every script's effects, which were then gone.
TEST_F(Acl, NothingIsLostWhenTheServerStartsAnew) {
  ASSERT_THAT(everyCall()["aggregator"].failed, IsEmpty());
  const auto before = valueOf(valueOf(open("aggregator", "run1")->readState()));
  const auto units = valueOf(open("aggregator", "run1")->readHistory(0, 100));
  ASSERT_THAT(units, Not(IsEmpty()));
  server_.killHard();
  server_.start();
  const auto after = valueOf(valueOf(open("aggregator", "run1")->readState()));
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  EXPECT_THAT(*open("aggregator", "run1")->readHistory(0, 100), SizeIs(units.size()));
}

TEST_F(Acl, WhoDoesNotLogInDoesNothing) {
  RedisConnection stranger(*parseRedisUrl(server_.url()), 5000);
  for (const std::vector<std::string_view>& words :
       {std::vector<std::string_view>{"GET", "allot:index"}, {"PING"}, {"ACL", "WHOAMI"}}) {
    EXPECT_THAT(stranger.call(words), isError(HasSubstr("NOAUTH")));
  }
  for (const char* password : {"", "x"}) {
    EXPECT_THAT(stranger.call({"AUTH", "default", password}), isError(HasSubstr("WRONGPASS")));
  }
}

TEST_F(Acl, AReaderWritesNothing) {
  ASSERT_THAT(everyCall()["reader"].refused, IsEmpty());
  ASSERT_TRUE(succeeded(Leadership(*open("aggregator", "run1"), 1).planUnits({unit(0, 0, "c")})));
  const auto store = open("reader", "run1");
  v1::WorkerBeat beat;
  beat.set_worker("w");
  EXPECT_TRUE(failsWith(store->pushResult(result("r9"), 10), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->takeTickets({1, 100}), ErrorCode::kUsage));
  ASSERT_TRUE(succeeded(Leadership(*open("aggregator", "run1"), 1).planUnits({unit(0, 1, "c")})));
  EXPECT_TRUE(failsWith(store->claimUnits({.holder = "w", .lease_ms = 10}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->beat({.beat = beat, .ttl_ms = 10}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->agreeOnModel({}), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->changeControl(*store->readControl().value()), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(store->acquireLease("a", 10), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(Leadership(*store, 1).reissueTicket(1), ErrorCode::kUsage));
  // No command of the reader is one that writes, whatever keys it may name.
  const auto writers = valueOf(tester_.call({"ACL", "CAT", "write"}));
  ASSERT_GT(writers.view().size(), 50u);
  const std::vector<std::string>& mine = aclRoles().back().commands;
  ASSERT_EQ(aclRoles().back().name, "reader");
  for (size_t i = 0; i < writers.view().size(); ++i)
    EXPECT_THAT(mine, Not(Contains(std::string(writers.view()[i].text()))));
}

TEST(AclFiles, AreWrittenWholeOrNotAtAll) {
  const TempFolder home;
  const std::string folder = home.path() + "/team/secrets";
  ASSERT_TRUE(succeeded(writeAcl(folder + "/")));
  const std::string text = readFile(folder + "/users.acl");
  EXPECT_THAT(text, HasSubstr("user default off"));
  std::set<std::string> passwords;
  for (const AclRole& role : aclRoles()) {
    const std::string path = folder + "/" + role.name + ".password";
    struct stat facts {};
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    const auto password = valueOf(readPassword(path));
    EXPECT_THAT(password, SizeIs(64));
    EXPECT_THAT(text, Not(HasSubstr(password)));
    EXPECT_THAT(text, HasSubstr("user " + role.name + " on #" + sha256Hex(password) + " "));
    passwords.insert(password);
  }
  EXPECT_THAT(passwords, SizeIs(4));

  // Passwords stay; other rights become those of this build.
  std::ofstream(folder + "/users.acl") << "user worker on";
  ASSERT_TRUE(succeeded(writeAcl(folder)));
  EXPECT_EQ(readFile(folder + "/users.acl"), text);
  std::filesystem::remove(folder + "/reader.password");
  EXPECT_FALSE(writeAcl(folder).has_value());
  EXPECT_EQ(readFile(folder + "/users.acl"), text);
  // Never over anything else, and nothing is left beside it.
  EXPECT_TRUE(failsWith(writeAcl(home.write("file", "x")), ErrorCode::kUsage));
  EXPECT_TRUE(failsWith(writeAcl(home.path() + "/file/folder"), ErrorCode::kIo));
  EXPECT_TRUE(failsWith(writeAcl(""), ErrorCode::kUsage));
  size_t items = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(home.path()))
    ++items;
  EXPECT_EQ(items, 2u);
}

}  // namespace
}  // namespace allot::test
