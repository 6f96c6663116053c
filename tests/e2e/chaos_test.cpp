// A running recall experiment whose processes are killed with SIGKILL again and again, each as soon
// as it runs again: redis-server, the aggregator, four workers. Afterwards every update must
// compute again from the history, no result may have counted twice, and every ticket must be
// accounted for.
//
// What is random is when and whom; the seed is printed. ALLOT_CHAOS_KILLS and ALLOT_CHAOS_SEED
// change number and seed.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "core/spec/spec_change.h"
#include "store/store.h"
#include "tests/e2e/programs.h"

namespace allot {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr char kRun[] = "chaos";
constexpr size_t kWorkers = 4;

uint64_t setting(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

class Chaos : public testing::Test {
 protected:
  Chaos() {
    std::string name = (fs::temp_directory_path() / "allot-chaos-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    url_ = "unix:" + folder_ + "/redis.sock";
    commands_["redis"] = {"redis-server",
                          {"--port", "0", "--unixsocket", folder_ + "/redis.sock", "--dir", folder_,
                           "--appendonly", "yes", "--appendfsync", "always", "--save", ""},
                          {}};
    commands_["aggregator"] = {kBin + "/allot-aggregator",
                               {"--redis", url_, "--run", kRun, "--experiment", kRecall, "--dir",
                                folder_, "--port", "0", "--lease-ms", "300"},
                               {}};
    for (const char* set : {"spec.task.contextTokens=192", "spec.task.trainQuestions=32",
                            "spec.task.heldOutQuestions=40", "spec.update.maxUpdates=100000",
                            "spec.update.episodesPerUpdate=4", "spec.rollout.questionsPerEpisode=4",
                            "spec.evaluation.everyUpdates=10", "spec.evaluation.budgets=[8, 16]"}) {
      auto& arguments = commands_["aggregator"].arguments;
      arguments.insert(arguments.end(), {"--set", set});
    }
    for (size_t i = 1; i <= kWorkers; ++i) {
      commands_["worker-" + std::to_string(i)] = {
          kBin + "/allot-worker",
          {"--redis", url_, "--run", kRun, "--name", "worker-" + std::to_string(i), "--model",
           kModel, "--kv-memory", "64"},
          {{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}}};
    }
  }
  ~Chaos() override {
    processes_.clear();
    if (!HasFailure()) fs::remove_all(folder_);
  }

  void start(const std::string& name) {
    auto process = valueOf(ChildProcess::start(commands_.at(name), folder_ + "/" + name + ".log"));
    processes_.insert_or_assign(name, std::move(process));
  }
  void kill(const std::string& name) {
    ChildProcess& process = processes_.at(name);
    process.signal(SIGKILL);
    ASSERT_TRUE(process.waitFor(seconds(10)));
    ++kills_[name.substr(0, name.find('-'))];
    start(name);
  }
  // What ended by itself is started again, as a cluster would; nothing may end as it must not.
  void revive() {
    for (auto& [name, process] : processes_) {
      const auto status = process.poll();
      if (!status || *status == 0) continue;
      EXPECT_TRUE(*status == 75 || *status == 128 + SIGKILL)
          << name << " ended with " << *status << ": "
          << lastLineOfFile(folder_ + "/" + name + ".log");
      ++revived_;
      start(name);
      return;
    }
  }
  // Waits until the published policy has this version.
  bool reaches(Store* store, uint64_t wanted) {
    return waitFor([&] { return version(store) >= wanted; }, 60);
  }
  // Repeats a store call until the store answers.
  template <typename Call>
  auto patiently(const Call& call) {
    auto answer = call();
    for (int i = 0; i < 300 && !answer; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      revive();
      answer = call();
    }
    return answer;
  }

  // Lets the run end after two more updates, in peace.
  void finish(Store* store) {
    for (bool changed = false; !changed;) {
      auto control = patiently([&] { return store->readControl(); });
      ASSERT_TRUE(control && *control);
      Control next = **control;
      next.experiment = *withSettings(
          next.experiment, {"spec.update.maxUpdates=" + std::to_string(version(store) + 2)});
      const auto done = store->changeControl(next);
      changed = done && *done;
    }
    const auto deadline = steady_clock::now() + seconds(180);
    std::optional<Desired> desired;
    while (desired != Desired::kFinished && steady_clock::now() < deadline) {
      revive();
      std::this_thread::sleep_for(milliseconds(100));
      const auto control = store->readControl();
      if (control && *control) desired = (*control)->desired;
    }
    ASSERT_EQ(desired, Desired::kFinished);
  }
  std::string verify() {
    const auto verified =
        valueOf(capture({kAllot, {"verify", "--redis", url_, "--run", kRun}, {}}));
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("verified"));
    return verified.out;
  }
  std::string logOf(const std::string& name) const {
    return readFile(folder_ + "/" + name + ".log");
  }
  uint64_t version(Store* store) {
    const auto policy = store->readPolicy();
    return policy && *policy ? (*policy)->snapshot.version() : 0;
  }
  size_t killed() const {
    size_t sum = 0;
    for (const auto& [kind, count] : kills_) sum += count;
    return sum;
  }
  std::string folder_, url_;
  std::map<std::string, Command> commands_;
  std::map<std::string, ChildProcess> processes_;
  std::map<std::string, size_t> kills_;
  size_t revived_ = 0;
};

TEST_F(Chaos, HundredsOfKillsLoseNothingAndCountNothingTwice) {
  const uint64_t wanted = setting("ALLOT_CHAOS_KILLS", 200);
  const uint64_t seed = setting("ALLOT_CHAOS_SEED", std::random_device{}());
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  std::printf("%s, seed %llu\n", folder_.c_str(), static_cast<unsigned long long>(seed));
  const auto began = steady_clock::now();
  for (const auto& [name, command] : commands_) start(name);
  auto store = std::move(*openRedisStore(url_, kRun, 2000));

  // A second aggregator comes now and then: the lease decides who leads.
  while (killed() < wanted) {
    std::this_thread::sleep_for(milliseconds(100 + below(900)));
    const uint64_t dice = below(100);
    if (dice < 60) {
      kill("worker-" + std::to_string(1 + below(kWorkers)));
    } else if (dice < 80) {
      kill("aggregator");
    } else if (dice < 95) {
      kill("redis");
    } else {
      kill("redis");
      kill("aggregator");
    }
    revive();
    if (HasFatalFailure()) return;
  }
  const double killing = std::chrono::duration<double>(steady_clock::now() - began).count();
  const uint64_t during = patiently([&]() -> Result<uint64_t> {
                            ALLOT_ASSIGN(const auto policy, store->readPolicy());
                            return policy ? policy->snapshot.version() : 0;
                          }).value_or(0);
  EXPECT_GT(during, 10u) << "too little happened between the kills to be a test";

  finish(store.get());
  if (HasFatalFailure()) return;
  const std::string verified = verify();  // every update computes again, bit for bit

  // Tickets: consumed, refused, waiting, or lost with a killed process. A worker has one in hand; a
  // killed Redis can swallow the answer to each worker's request for one.
  std::set<uint64_t> consumed;
  std::set<std::string> workers;
  uint64_t results = 0;
  for (uint64_t after = 0;;) {
    const auto records = valueOf(store->readHistory(after, 64));
    if (records.empty()) break;
    for (const auto& record : records) {
      after = record.version();
      for (const auto& result : record.results()) {
        ++results;
        consumed.insert(result.ticket());
        workers.insert(result.worker());
      }
    }
  }
  EXPECT_EQ(consumed.size(), results) << "a ticket counted twice";
  const uint64_t taken = *store->nextTicket();
  uint64_t refused = 0;
  const auto refusals = *store->readRefusalCounts();
  for (const auto& [kind, count] : refusals) refused += count;
  const uint64_t waiting = *store->inboxSize();
  EXPECT_EQ(refused, 0u);
  ASSERT_GE(taken, results + refused + waiting);
  const uint64_t lost = taken - results - refused - waiting;
  EXPECT_LE(lost, kills_["worker"] + kWorkers * kills_["redis"] + kWorkers);
  EXPECT_EQ(*store->openUnits(), 0u);
  std::printf(
      "%zu kills (worker %zu, aggregator %zu, redis %zu) in %.0f s, %zu ended by themselves\n"
      "%llu updates, %llu results of %zu worker processes, %llu waiting; %llu tickets lost with "
      "what was killed\n%s",
      killed(), kills_["worker"], kills_["aggregator"], kills_["redis"], killing, revived_,
      static_cast<unsigned long long>(version(store.get())),
      static_cast<unsigned long long>(results), workers.size(),
      static_cast<unsigned long long>(waiting), static_cast<unsigned long long>(lost),
      verified.c_str());
}

TEST_F(Chaos, TheOlderOfTwoAggregatorsIsFencedAndLeaves) {
  commands_["successor"] = commands_["aggregator"];
  for (const char* name : {"redis", "aggregator", "worker-1", "worker-2"}) start(name);
  auto store = std::move(*openRedisStore(url_, kRun, 2000));
  ASSERT_TRUE(reaches(store.get(), 3));
  processes_.at("aggregator").signal(SIGSTOP);  // as a node that is cut off
  start("successor");
  ASSERT_TRUE(reaches(store.get(), version(store.get()) + 3));
  processes_.at("aggregator").signal(SIGCONT);
  EXPECT_EQ(valueOf(processes_.at("aggregator").waitFor(seconds(20))), 75);
  EXPECT_THAT(logOf("aggregator"),
              AnyOf(HasSubstr("leads this run now"), HasSubstr("another aggregator took over")));
  processes_.erase("aggregator");
  EXPECT_FALSE(processes_.at("successor").poll());
  finish(store.get());
  verify();
}

TEST_F(Chaos, ARedisThatIsAwayForAMinuteEndsNobodyAndLosesNothing) {
  for (const char* name : {"redis", "aggregator", "worker-1", "worker-2"}) start(name);
  auto store = std::move(*openRedisStore(url_, kRun, 2000));
  ASSERT_TRUE(reaches(store.get(), 3));
  processes_.at("redis").signal(SIGKILL);
  ASSERT_TRUE(processes_.at("redis").waitFor(seconds(10)));
  std::this_thread::sleep_for(seconds(setting("ALLOT_OUTAGE_SECONDS", 60)));
  for (const char* name : {"aggregator", "worker-1", "worker-2"}) {
    EXPECT_FALSE(processes_.at(name).poll()) << name << " ended while Redis was away";
  }
  start("redis");
  uint64_t before = 0;
  ASSERT_TRUE(patiently([&]() -> Result<bool> {
    ALLOT_ASSIGN(const auto policy, store->readPolicy());
    if (policy) before = policy->snapshot.version();
    return true;
  }));
  EXPECT_GE(before, 3u);
  EXPECT_TRUE(reaches(store.get(), before + 3));
  // Each in its own time: a pause grows to ten seconds.
  for (const char* name : {"worker-1", "worker-2"}) {
    waitFor([&] { return logOf(name).find("the store is back after") != std::string::npos; }, 30);
    EXPECT_THAT(logOf(name), HasSubstr("the store is back after")) << name;
  }
  EXPECT_EQ(revived_, 0u);
  finish(store.get());
  verify();
  // Nobody died, so every ticket is accounted for but those whose answer the outage swallowed.
  uint64_t results = 0;
  const auto records = valueOf(store->readHistory(0, 10'000));
  for (const auto& record : records) results += static_cast<uint64_t>(record.results_size());
  EXPECT_LE(*store->nextTicket() - results - *store->inboxSize(), 2u);
}

}  // namespace
}  // namespace allot
