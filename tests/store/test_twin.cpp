// The same random calls on MemoryStore and on a real Redis: the twins answer alike.
//
// A walk is one run on a server of each kind, and some hundred calls of two clients. What a call
// asks for is drawn once and asked of both sides; the answers are compared as texts. A test at the
// end fails when Store has calls that twin_calls.cpp does not have.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "store/memory/memory_store.h"
#include "tests/store/redis_server.h"
#include "tests/store/twin_calls.h"

namespace allot::test {
namespace {

constexpr uint64_t kWalks = 60;
constexpr int kCallsAWalk = 200;

class Twin : public ::testing::Test {
 protected:
  // The calls of one walk, until an answer differs; says so with the calls before.
  void walk(uint64_t seed) {
    uint64_t now = 1'000'000;
    const auto server = std::make_shared<MemoryServer>([&now] { return now; });
    Side memory, redis;
    for (size_t client = 0; client < 2; ++client) {
      memory.clients[client] = openMemoryStore(server);
      redis.clients[client] =
          std::move(*openRedisStore(redis_.url(), "walk" + std::to_string(seed)));
    }
    Scene scene(seed, &memory);
    std::vector<const Kind*> lots;
    for (const Kind& kind : twinCalls())
      lots.insert(lots.end(), static_cast<size_t>(kind.weight), &kind);
    std::string story;
    for (int i = 0; i < kCallsAWalk; ++i, ++now) {
      const Kind& kind = *lots[scene.below(lots.size())];
      const size_t client = scene.below(2);
      const Call call = kind.draw(scene);
      const std::string here = call(*memory.clients[client], memory);
      const std::string there = call(*redis.clients[client], redis);
      story +=
          std::string(kind.name) + " by client " + std::to_string(client) + " -> " + here + "\n";
      if (here.starts_with("error")) ++refused_[kind.name];
      ++made_[kind.name];
      ASSERT_EQ(here, there) << "seed " << seed << ", the last calls:\n"
                             << story.substr(story.size() - std::min<size_t>(story.size(), 3000));
    }
  }

  RedisServer redis_{{"--appendonly", "no"}};
  std::map<std::string, int> made_, refused_;
};

TEST_F(Twin, AnswerRandomCallsAlike) {
  for (uint64_t seed = 0; seed < kWalks && !HasFatalFailure(); ++seed) walk(seed);
  // A walk in which everything is refused would show nothing.
  for (const Kind& kind : twinCalls()) {
    EXPECT_GT(made_[kind.name], refused_[kind.name]) << kind.name << " never succeeded";
  }
}

TEST(TwinCalls, AreAllThatStoreHas) {
  std::stringstream header;
  for (const char* role : {"leadership", "run_control", "run_reader", "work_source"}) {
    header << std::ifstream(std::string(ALLOT_SOURCE_DIR "/store/") + role + ".h").rdbuf();
  }
  const std::string code = header.str();
  std::set<std::string> declared, drawn;
  const std::regex pure("virtual [^;~]*? (\\w+)\\([^;]*\\) = 0;");
  for (std::sregex_iterator it(code.begin(), code.end(), pure), end; it != end; ++it) {
    declared.insert((*it)[1]);
  }
  for (const Kind& kind : twinCalls()) drawn.insert(kind.name);
  EXPECT_GT(declared.size(), 40u);
  for (const std::string& call : declared) EXPECT_TRUE(drawn.contains(call)) << call;
}

}  // namespace
}  // namespace allot::test
